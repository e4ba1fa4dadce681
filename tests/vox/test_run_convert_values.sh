#!/bin/sh
# spvox convert against numpy and laspy: coordinates, means, majority, point map, cost, mean and
# std; on files made here, and on real scans where SP_SHARED_DATA (or ../shared/data beside the
# sources) has them. Needs python3 with h5py and numpy; laspy for LAS.
. "$SP_SRCDIR/tests/fixtures/program.sh"
find_python "h5py, numpy"
data=${SP_SHARED_DATA-$SP_SRCDIR/../shared/data}
test -d "$data" || data=
test -n "$data" || echo "no real scans: set SP_SHARED_DATA; only the files made here are compared" >&2
SPVOX=$SP_BUILDDIR/spvox DIR=$dir DATA=$data "$python" - <<'PYTHON' || exit 1
import os, subprocess, sys
import h5py, numpy as np

spvox, folder, data = (os.environ[k] for k in ("SPVOX", "DIR", "DATA"))


def convert(name, inputs, *options):
    out = os.path.join(folder, name)
    subprocess.run([spvox, "convert", "--out", out, "--points", *options, *inputs],
                   check=True, stdout=subprocess.DEVNULL)
    return h5py.File(out + "-00000-of-00001.h5")


def majority(voxel, label, n, classes):
    votes = np.stack([np.bincount(voxel[label == k], minlength=n) for k in range(classes)], 1)
    best = votes.max(1)
    winner = votes.argmax(1)
    winner[(best == 0) | ((votes == best[:, None]).sum(1) > 1)] = 255
    return winner


def key(cell):
    x, y, z = (cell + 2).astype(np.int64).T
    return x << 42 | y << 21 | z


def check(h5, sample, size, xyz, label, columns):
    """One sample against its points; columns: {name: value of each point}."""
    first, end = h5["offsets"][sample:sample + 2]
    p, q = h5["point_offsets"][sample:sample + 2]
    origin = h5["origin"][sample]
    assert (origin == np.floor(xyz.min(0))).all()
    cell = np.floor((xyz - origin) / size).astype(int)
    distinct = cell[np.unique(key(cell), return_index=True)[1]]
    coords = h5["coords"][first:end]
    voxel = h5["point_voxel"][p:q].astype(int)
    n = len(coords)
    assert n == len(distinct)
    assert (coords[voxel] == cell).all()
    assert (h5["point_index"][p:q] == np.arange(len(xyz))).all()
    assert (h5["point_labels"][p:q] == label).all()
    assert (h5["labels"][first:end] == majority(voxel, label, n, h5.attrs["num_classes"])).all()
    count = np.bincount(voxel)
    columns = dict(columns, one=np.ones(len(xyz)), height=xyz[:, 2] - np.percentile(xyz[:, 2], 2))
    for c, name in enumerate(h5.attrs["feature_names"]):
        want = count if name == "count" else np.bincount(voxel, columns[name]) / count
        got = h5["features"][first:end, c]
        assert np.allclose(got, want, rtol=1e-6, atol=1e-5), (name, abs(got - want).max())
    inside = (xyz - origin) / size - cell
    place = np.stack([np.bincount(voxel, inside[:, a]) / count for a in range(3)], 1)
    assert abs(np.floor(place * 256) - h5["subvoxel"][first:end]).max() <= 1
    keys = np.sort(key(distinct))
    pairs = sum(np.isin(key(distinct + (i, j, k)), keys, assume_unique=True).sum()
                for i in (-1, 0, 1) for j in (-1, 0, 1) for k in (-1, 0, 1))
    levels = [len(np.unique(key(distinct >> k))) for k in range(5)]
    assert (h5["cost"][sample] == levels + [pairs]).all()


def check_statistics(h5):
    features = h5["features"][:].astype(float)
    mean, std = features.mean(0), features.std(0)
    constant = std < 1e-6
    mean[constant], std[constant] = 0, 1
    assert np.allclose(h5.attrs["feature_mean"], mean, rtol=1e-9)
    assert np.allclose(h5.attrs["feature_std"], std, rtol=1e-9)


def made_here():
    rng = np.random.default_rng(1)
    xyz = (rng.random((4000, 3)) * (12, 9, 4) + (84990.25, 447000.5, -3)).astype(np.float32)
    label = rng.integers(0, 5, 4000)
    value = rng.integers(0, 1000, 4000)
    table = np.column_stack([xyz.astype(float), value, label])
    np.save(folder + "/a.npy", np.asfortranarray(table))
    known = np.array([255, 0, 1, 1, 255])[label]
    h5 = convert("a", [folder + "/a.npy"], "--voxel-size", "0.7", "--columns",
                 "x,y,z,value,label", "--features", "value/10,count,height,one",
                 "--map", "1=low,2:3=high")
    assert list(h5.attrs["class_names"]) == ["low", "high"]
    check(h5, 0, 0.7, xyz.astype(float), known, {"value": value / 10})
    check_statistics(h5)
    h5 = convert("b", [folder + "/a.npy"], "--voxel-size", "0.7", "--columns",
                 "x,y,z,value,label")
    check(h5, 0, 0.7, xyz.astype(float), label, {})
    assert list(h5.attrs["class_names"]) == ["class%d" % k for k in range(5)]
    for n in 1, 2, 51, 4000:  # the percentile of z that several points have
        few = table[:n].copy()
        few[:, 2] = np.round(few[:, 2])
        np.save(folder + "/few.npy", few)
        h5 = convert("few%d" % n, [folder + "/few.npy"], "--columns", "x,y,z,value,label",
                     "--features", "height", "--voxel-size", "0.7")
        check(h5, 0, 0.7, few[:, :3], label[:n], {})
    h5 = convert("c", [folder + "/a.npy"], "--columns", "x,y,z", "--bounds",
                 "84991,447002,84995,447004.5")
    x, y = xyz[:, 0].astype(float), xyz[:, 1].astype(float)
    within = (x >= 84991) & (x < 84995) & (y >= 447002) & (y < 447004.5)
    assert "labels" not in h5 and (h5["point_index"][:] == np.flatnonzero(within)).all()


def real_las():
    import laspy
    folder_of = data + "/als_lidarhd_nimes/"
    files = [folder_of + f for f in ("77050_627755.las", "77055_627760.las")]
    files += [data + "/als_lidarhd_1km/semis_2023_0292_6833.las"]
    known = np.full(256, 255)
    known[2], known[3:6], known[6] = 0, 1, 2
    names = ["intensity", "return_number", "number_of_returns", "user_data",
             "point_source_id", "edge_of_flight_line"]
    h5 = convert("las", files, "--map", "2=ground,3:4:5=vegetation,6=building",
                 "--features", ",".join(names) + ",height,one")
    for s, path in enumerate(files):
        las = laspy.read(path)
        xyz = np.stack([las.x, las.y, las.z], 1)
        check(h5, s, 0.5, xyz, known[np.asarray(las.classification)],
              {k: np.asarray(las[k], float) for k in names})
    check_statistics(h5)


def real_kitti():
    base = data + "/mls_semantickitti/sequences/08/"
    points = np.fromfile(base + "velodyne/000000.bin", "<f4").reshape(-1, 4)
    code = np.fromfile(base + "labels/000000.label", "<u4") & 0xFFFF
    h5 = convert("kitti", [base + "velodyne/000000.bin"], "--voxel-size", "0.05")
    check(h5, 0, 0.05, points[:, :3].astype(float), code, {"intensity": points[:, 3]})


made_here()
if data:
    real_kitti()
    try:
        import laspy
    except ImportError:
        print("LAS is not compared: no laspy", file=sys.stderr)
    else:
        real_las()
PYTHON
