"""Predicts with a model from Python, by ctypes: without a build step or a package.

    python3 predict.py MODEL [LIBRARY]

MODEL is a checkpoint or a packed model. LIBRARY is libsptrain.so.0 (the default) or
libsptrain-predict.so.0, which needs neither MPI nor HDF5 and takes packed models. Prints how
many voxels of a plane get each class."""

import ctypes
import sys


class Info(ctypes.Structure):
    _fields_ = [("n_features", ctypes.c_int), ("n_classes", ctypes.c_int),
                ("voxel_size", ctypes.c_double),
                ("feature_names", ctypes.POINTER(ctypes.c_char_p)),
                ("class_names", ctypes.POINTER(ctypes.c_char_p))]


def main(path, library="libsptrain.so.0"):
    lib = ctypes.CDLL(library)
    lib.sp_error_text.restype = ctypes.c_char_p

    def check(status):
        if status:
            sys.exit("predict.py: " + lib.sp_error_text().decode())

    model, info = ctypes.c_void_p(), Info()
    check(lib.sp_model_open(ctypes.byref(model), path.encode(), None))
    check(lib.sp_model_describe(model, ctypes.byref(info)))
    edge = 16
    n = edge * edge
    coords = (ctypes.c_int32 * (3 * n))(*(c for x in range(edge) for y in range(edge)
                                          for c in (x, y, 0)))
    features = (ctypes.c_float * (info.n_features * n))()
    labels = (ctypes.c_uint16 * n)()
    check(lib.sp_model_predict(model, ctypes.c_int64(n), coords, features, None, labels))
    for c in range(info.n_classes):
        print(f"{info.class_names[c].decode()}: {sum(x == c for x in labels)} voxels")
    lib.sp_model_close(model)


if __name__ == "__main__":
    main(*sys.argv[1:])
