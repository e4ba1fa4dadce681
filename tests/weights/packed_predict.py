"""A packed model through libsptrain-predict, beside the predictions of `sptrain predict`.

    packed_predict.py LIBRARY MODEL.spm SHARD PREDICTIONS [exact]
"""
import ctypes
import sys
import threading

import h5py
import numpy as np


class Info(ctypes.Structure):
    _fields_ = [
        ("n_features", ctypes.c_int),
        ("n_classes", ctypes.c_int),
        ("voxel_size", ctypes.c_double),
        ("feature_names", ctypes.POINTER(ctypes.c_char_p)),
        ("class_names", ctypes.POINTER(ctypes.c_char_p)),
    ]


class Options(ctypes.Structure):
    _fields_ = [("threads", ctypes.c_int), ("device", ctypes.c_char_p)]


lib = ctypes.CDLL(sys.argv[1])
lib.sp_error_text.restype = ctypes.c_char_p


def pointer(array):
    return None if array is None else array.ctypes.data_as(ctypes.c_void_p)


def open_model(path, threads=1, device=None):
    model, options = ctypes.c_void_p(), Options(threads, device)
    rc = lib.sp_model_open(ctypes.byref(model), path.encode(), ctypes.byref(options))
    return rc, model


def predict(model, coords, features, c):
    n = len(coords)
    logits, labels = np.empty((n, c), "f4"), np.empty(n, "u2")
    rc = lib.sp_model_predict(
        model,
        ctypes.c_int64(n),
        pointer(np.ascontiguousarray(coords, "i4")),
        pointer(np.ascontiguousarray(features, "f4")),
        pointer(logits),
        pointer(labels),
    )
    return rc, logits, labels


def samples(path, names):
    with h5py.File(path) as f:
        at = f["offsets"][:]
        columns = [list(f.attrs["feature_names"]).index(n) for n in names]
        for s in range(len(at) - 1):
            rows = slice(at[s], at[s + 1])
            yield rows, f["coords"][rows], f["features"][rows].astype("f4")[:, columns]


def check_errors(model, coords, features, c):
    def fails(code, words, xyz, values):
        rc, _, _ = predict(model, xyz, values, c)
        text = lib.sp_error_text().decode()
        assert rc == code and words in text, (rc, text)

    bad = coords.copy()
    bad[-1] = bad[0]
    fails(3, "each voxel must be given once", bad, features)
    bad[-1] = (1 << 19, 0, 0)
    fails(3, "coords[%d][0] is 524288" % (len(coords) - 1), bad, features)
    nan = features.copy()
    nan[2, 0] = np.nan
    fails(3, "features[2][0]", coords, nan)
    assert lib.sp_model_predict(model, ctypes.c_int64(-1), None, None, None, None) == 2
    assert lib.sp_model_predict(model, ctypes.c_int64(3), None, None, None, None) == 2
    assert predict(model, coords[:0], features[:0], c)[0] == 0


def check_opening(path):
    rc, model = open_model(path + ".absent")
    assert rc == 3 and not model.value, rc
    rc, model = open_model(sys.argv[3])
    assert rc == 3 and b"no packed model" in lib.sp_error_text(), lib.sp_error_text()
    assert open_model(path, device=b"cuda")[0] == 2
    assert open_model(path, threads=-1)[0] == 2
    assert lib.sp_model_open(None, None, None) == 2
    model = ctypes.c_void_p(1)
    assert lib.sp_model_open(ctypes.byref(model), None, None) == 2
    assert not model.value
    lib.sp_model_close(None)


def main():
    path = sys.argv[2]
    rc, model = open_model(path)
    assert rc == 0, lib.sp_error_text()
    info = Info()
    assert lib.sp_model_describe(model, ctypes.byref(info)) == 0
    names = [info.feature_names[i].decode() for i in range(info.n_features)]
    classes = [info.class_names[i].decode() for i in range(info.n_classes)]
    with h5py.File(sys.argv[3]) as f:
        assert abs(f.attrs["voxel_size"] - info.voxel_size) < 1e-9
        assert list(f.attrs["class_names"]) == classes, classes
    with h5py.File(sys.argv[4]) as f:
        want, want_labels = f["logits"][:], f["labels"][:]
    rng = np.random.default_rng(1)
    work = []
    for rows, coords, features in samples(sys.argv[3], names):
        order = rng.permutation(len(coords))
        for o in (np.arange(len(coords)), order):
            rc, logits, labels = predict(model, coords[o], features[o], info.n_classes)
            assert rc == 0, lib.sp_error_text()
            assert np.array_equal(logits.view("u4"), want[rows][o].view("u4")), "logits"
            assert np.array_equal(labels, want_labels[rows][o]), "labels"
        work.append((coords, features, want[rows]))
    coords, features, _ = work[0]
    check_errors(model, coords, features, info.n_classes)
    check_opening(path)

    # Four threads on one model, then four on models of their own.
    def run(handle, found):
        for xyz, values, right in work:
            rc, logits, _ = predict(handle, xyz, values, info.n_classes)
            found.append(rc == 0 and np.array_equal(logits.view("u4"), right.view("u4")))

    for handles in ([model] * 4, [open_model(path, 2)[1] for _ in range(4)]):
        found = []
        threads = [threading.Thread(target=run, args=(h, found)) for h in handles]
        for t in threads:
            t.start()
        for t in threads:
            t.join()
        assert len(found) == 4 * len(work) and all(found), found
        if handles[0] is not model:
            for h in handles:
                lib.sp_model_close(h)
    lib.sp_model_close(model)


main()
