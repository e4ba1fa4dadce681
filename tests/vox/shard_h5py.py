"""Compares shards written by h5py, and one of ours read by h5py, with what make_shards samples says."""
import subprocess
import sys

import h5py
import numpy as np

tool, folder, ours = sys.argv[1:]
rng = np.random.default_rng(4)
sizes = [30, 0, 12]
offsets = np.concatenate([[0], np.cumsum(sizes)])
M = offsets[-1]
cells = rng.permutation(20 ** 3)[:M]
coords = np.stack([cells % 20, cells // 20 % 20, cells // 400], 1) - 5
features = rng.integers(0, 200, (M, 2))
labels = rng.integers(0, 3, M)
labels[::7] = 3
subvoxel = rng.integers(0, 256, (M, 3))
origin = np.arange(9).reshape(3, 3) / 2
point_offsets = np.concatenate([[0], np.cumsum([4, 0, 3])])
point_voxel, point_labels = rng.integers(0, 12, 7), rng.integers(0, 4, 7)


def write(path, types={}, **storage):
    with h5py.File(path, "w") as f:
        f.attrs.update(format="sptrain-voxels", version=1, voxel_size=0.5, num_classes=3,
                       ignore_label=3, class_names=["a", "b", "c"], feature_names=["x", "y"])
        for name, data in dict(offsets=offsets, coords=coords, features=features,
                               labels=labels, origin=origin, subvoxel=subvoxel,
                               point_offsets=point_offsets, point_voxel=point_voxel,
                               point_labels=point_labels).items():
            f.create_dataset(name, data=data.astype(types.get(name, data.dtype)), **storage)
        f["names"] = ["first", "zw\u00f6lf", ""]


def expected():
    lines = []
    for s in range(3):
        a, b = offsets[s], offsets[s + 1]
        lines.append("sample %d %s origin %.9g %.9g %.9g" %
                     (s, ["first", "zw\u00f6lf", ""][s], *origin[s]))
        for i in range(a, b):
            label = -1 if labels[i] == 3 else labels[i]
            lines.append("%d %d %d %d %d %d %d" % (*coords[i], label, *features[i],
                                                   subvoxel[i, 0]))
        for k, i in enumerate(range(point_offsets[s], point_offsets[s + 1])):
            label = -1 if point_labels[i] == 3 else point_labels[i]
            lines.append("point %d %d %d" % (point_voxel[i], label, k))
    return lines


def run(*args):
    done = subprocess.run([tool, "samples", *args], capture_output=True, text=True)
    return done.returncode, done.stdout.splitlines(), done.stderr


def same(path, what):
    code, lines, errors = run(path)
    assert code == 0 and lines == expected(), (what, code, errors, lines[:3])
    return errors


path = folder + "/a.h5"
write(path)
assert same(path, "defaults") == ""
everywhere = "offsets coords features labels subvoxel point_offsets point_voxel point_labels"
for kind in "i2 i4 i8 u2 >i2 >i4 >i8 >u8 f2 f4 f8 >f2 >f4 >f8".split():
    keep = {"u2": ["coords"], ">u8": ["coords"]}.get(kind, [])
    write(path, {name: kind for name in everywhere.split() if name not in keep})
    same(path, kind)
write(path, {"features": "u1", "labels": "i1", "coords": "i1"})
same(path, "bytes")
write(path, chunks=True, compression="gzip", shuffle=True, fletcher32=True)
assert "unpacks the values that it needs once" in same(path, "gzip")
write(path, {"coords": ">f8"}, chunks=True)
same(path, "chunked floats")
with h5py.File(path, "w", libver="latest") as f:
    pass
write(path)
with h5py.File(path, "a") as f:  # attributes of one element and fixed texts
    f.attrs["voxel_size"] = np.array([0.5], "f4")
    f.attrs["num_classes"] = np.array([3], "u1")
    f.attrs["version"] = 1.0
    f.attrs["class_names"] = np.array([b"a", b"b", b"c"])
    f.attrs["format"] = np.bytes_("sptrain-voxels")
    del f["names"]
    f["names"] = np.array(["first".encode(), "zw\u00f6lf".encode(), b""])
same(path, "attributes")

with h5py.File(path, "a") as f:
    del f["labels"]
    f.create_dataset("labels", (M,), chunks=(5,), dtype="u1")
code, lines, errors = run(path)
assert code == 3 and "not all written" in errors, errors
with h5py.File(path, "a") as f:  # a filter that only h5py has
    del f["labels"]
    f.create_dataset("labels", data=labels.astype("u1"), compression="lzf")
code, lines, errors = run(path)
assert code == 3 and "/labels: compressed by the filter \"lzf\"" in errors, errors

# Features that float32 does not hold are rounded, with one warning.
def rounded(kind, values):
    global features
    kept, features = features, values.astype("f4")
    write(path)
    lines = run(path)[1]
    features = values
    write(path, {"features": kind})
    features = kept
    code, rounded_lines, errors = run(path)
    assert code == 0 and rounded_lines == lines, (kind, errors)
    return errors


thirds = rng.random((M, 2)) / 3
errors = rounded("f8", thirds)
assert errors.count("warning") == 1 and "rounded to float32, by at most" in errors, errors
assert "standard deviation" not in errors, errors
errors = rounded("f8", thirds + [6833000, 0])  # metres of a map: half a metre is lost
assert errors.count("warning") == 1 and "column x by up to 0.2" in errors, errors
assert "column y" not in errors, errors
assert rounded("i8", rng.integers(0, 9, (M, 2)) * 3000) == ""
errors = rounded("i8", (1 << 24) + rng.integers(0, 9, (M, 2)))
assert "int64 values are rounded to float32, by at most 1" in errors, errors


# Shards that are refused by name.
def refused(change, words):
    write(path)
    with h5py.File(path, "a") as f:
        change(f)
    code, lines, errors = run(path)
    assert code == 3 and words in errors, (words, code, errors)


def link(f):
    with h5py.File(folder + "/other.h5", "w") as other:
        other["features"] = np.full((M, 2), 7.0, "f4")
    del f["features"]
    f["features"] = h5py.ExternalLink("other.h5", "/features")


def virtual(f):
    layout = h5py.VirtualLayout(shape=(M, 2), dtype="f4")
    layout[:] = h5py.VirtualSource(folder + "/other.h5", "features", shape=(M, 2))
    del f["features"]
    f.create_virtual_dataset("features", layout)


def cost(at, value):
    def change(f):
        f["cost"] = np.diff(f["offsets"])[:, None].repeat(6, 1)
        f["cost"][at] = value
    return change


refused(link, "/features: is a link to another file (other.h5:/features)")
refused(virtual, "/features: is a virtual dataset")
refused(lambda f: f.attrs.update(class_names=["a", "b", "a"]), "class_names has \"a\" twice")
refused(lambda f: f.attrs.update(feature_names=["x", "x"]), "feature_names has \"x\" twice")
refused(cost((0, 5), 1 << 62), "/cost: sample 0: column 5")
refused(cost((2, 1), 13), "expected 2 to 12 for 12 voxels")
refused(cost((2, 1), 1), "expected 2 to 12 for 12 voxels")
refused(cost((2, 5), 11), "column 5 is 11, expected 12 to 324 for 12 voxels")
refused(cost((1, 0), -1), "/cost: sample 1: column 0 is -1")

code, lines, errors = run(ours)
with h5py.File(ours) as f:
    assert f.attrs["format"] == "sptrain-voxels" and f.attrs["version"] == 1
    assert list(f.attrs["class_names"]) == ["class%d" % i for i in range(4)]
    types = dict(offsets="i8", coords="i4", features="f4", labels="u1", origin="f8",
                 subvoxel="u1", cost="i8", crc32c="u4", point_offsets="i8",
                 point_voxel="u4", point_labels="u1", point_index="u8")
    for name, kind in types.items():
        assert f[name].dtype == np.dtype(kind) and f[name].chunks is None, name
    assert f["names"][0] == b"sample0"
    rows = [l.split() for l in lines if l[0] not in "sp"]
    got = np.array(rows, float)
    assert (got[:, :3] == f["coords"][:]).all()
    assert (np.where(got[:, 3] < 0, 255, got[:, 3]) == f["labels"][:]).all()
    assert (got[:, 4:7].astype("f4") == f["features"][:]).all()
print("h5py and sptrain agree")
