"""What golden_net.pt, which torch wrote from spconv 2.3.8, holds.

    golden_reference.py shard GOLDEN.pt OUT.h5 CLASSES  its input as a shard
    golden_reference.py same GOLDEN.pt PREDICTIONS      its stem, in plain numpy, against the
                                                        logits
    golden_reference.py biased GOLDEN.pt CHECKPOINT OUT.h5  weights with the statistics that a
                                                        batch was normalized by
    golden_reference.py whole GOLDEN.pt PREDICTIONS     its own output against the logits

The file's pickle is read over inert values here too.
"""
import io
import pickle
import sys
import zipfile

import h5py
import numpy as np

TYPES = {"FloatStorage": "<f4", "HalfStorage": "<f2", "IntStorage": "<i4", "LongStorage": "<i8"}


class Reader(pickle.Unpickler):
    def __init__(self, archive):
        self.archive = zipfile.ZipFile(archive)
        self.top = next(n for n in self.archive.namelist() if n.endswith("data.pkl"))[:-8]
        super().__init__(io.BytesIO(self.archive.read(self.top + "data.pkl")))

    def find_class(self, module, name):
        if name == "_rebuild_tensor_v2":
            return self.rebuild
        return dict if name == "OrderedDict" else name

    def persistent_load(self, id):
        return np.frombuffer(self.archive.read(f"{self.top}data/{id[2]}"), TYPES[id[1]])

    @staticmethod
    def rebuild(storage, offset, size, stride, *_):
        at = storage[offset:]
        return np.lib.stride_tricks.as_strided(at, size, [s * at.itemsize for s in stride])


def submanifold(coords, x, w):
    """w [c_out, k, k, k, c_in] over the index columns after the batch."""
    place = {tuple(c): i for i, c in enumerate(coords)}
    out = np.zeros((len(x), w.shape[0]))
    r = range(-(w.shape[1] // 2), w.shape[1] // 2 + 1)
    for i, c in enumerate(coords):
        for a in r:
            for b in r:
                for d in r:
                    j = place.get((c[0], c[1] + a, c[2] + b, c[3] + d))
                    if j is not None:
                        out[i] += w[:, a - r[0], b - r[0], d - r[0], :] @ x[j]
    return out


def generated(index):
    """Number of voxels that a 3^3 convolution of stride 2 generates within 32^3."""
    c = np.repeat(index.astype("i8"), 27, 0)
    d = np.stack(np.meshgrid([-1, 0, 1], [-1, 0, 1], [-1, 0, 1]), -1).reshape(-1, 3)
    c[:, 1:] -= np.tile(d, (len(index), 1))
    c = c[(c[:, 1:] % 2 == 0).all(1) & (c[:, 1:] >= 0).all(1) & (c[:, 1:] < 32).all(1)]
    return len(np.unique(c, axis=0))


def main():
    case = Reader(sys.argv[2]).load()["cases"][0]
    index, x = case["input"]["indices"], case["input"]["features"].astype("f4")
    order = np.argsort(index[:, 0], kind="stable")
    index, x = index[order], x[order]
    n_samples = int(index[:, 0].max()) + 1
    if sys.argv[1] == "shard":
        with h5py.File(sys.argv[3], "w") as f:
            f["offsets"] = np.searchsorted(index[:, 0], np.arange(n_samples + 1)).astype("i8")
            f["coords"] = index[:, 1:].astype("i4")
            f["features"] = x
            f["labels"] = np.zeros(len(x), "u1")
            f.attrs["format"], f.attrs["version"] = "sptrain-voxels", 1
            n_classes = int(sys.argv[4])
            f.attrs["voxel_size"], f.attrs["num_classes"] = 0.1, n_classes
            f.attrs["ignore_label"] = 255
            f.attrs["class_names"] = [f"c{i}" for i in range(n_classes)]
            f.attrs["feature_names"] = [f"f{i}" for i in range(x.shape[1])]
        return
    if sys.argv[1] == "biased":
        # torch keeps the unbiased variance and normalizes by the biased one.
        rows = {"stem.1": len(index), "mid.1": generated(index)}
        print("generated", rows["mid.1"])
        with h5py.File(sys.argv[3]) as f, h5py.File(sys.argv[4], "w") as to:
            f.copy("params", to)
            f.copy("buffers", to)
            for layer, n in rows.items():
                at = f"buffers/{layer}/running_var"
                value = to[at][:].astype("f8") * (n - 1) / n
                del to[at]
                to[at] = value.astype("f4")
            for group in ("params", "buffers"):
                to[group].visititems(lambda _, x: x.attrs.pop("crc32c", None) and None)
        return
    if sys.argv[1] == "whole":
        expect = case["expect"]
        with h5py.File(sys.argv[3]) as f:
            worst = np.abs(f["logits"][:] - expect["out_features"][order]).max()
        print("worst difference", worst, "of", expect["atol_out"])
        assert worst <= expect["atol_out"], worst
        return
    s = {k: v.astype("f8") for k, v in case["state_dict"].items()}
    y = submanifold(index.tolist(), x.astype("f8"), s["stem.0.weight"])
    y = (y - s["stem.1.running_mean"]) / np.sqrt(s["stem.1.running_var"] + 1e-5)
    y = np.maximum(y * s["stem.1.weight"] + s["stem.1.bias"], 0)
    y = submanifold(index.tolist(), y, s["stem.3.weight"])
    with h5py.File(sys.argv[3]) as f:
        worst = np.abs(f["logits"][:] - y).max() / np.abs(y).max()
    print("worst difference", worst)
    assert worst < 2e-6, worst


main()
