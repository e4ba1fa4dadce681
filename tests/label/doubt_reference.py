"""The distances of --doubtful-features from their definition, in float64.

doubt_reference.py CHECKPOINT SHARD LABELLED CODE
    CHECKPOINT was calibrated on SHARD, one sample, and its network is one layer, so that
    the features are the columns; the scan LABELLED has CODE where a point is doubtful
"""
import sys

import h5py
import numpy as np


def mean_around(cells, x):
    """The mean over the voxels of the 3^3 cells around each voxel's cell."""
    of_cell = {}
    for i, c in enumerate(map(tuple, cells)):
        of_cell.setdefault(c, []).append(i)
    near = {}
    for a, b, c in of_cell:
        rows = [i for u in (-1, 0, 1) for v in (-1, 0, 1) for w in (-1, 0, 1)
                for i in of_cell.get((a + u, b + v, c + w), [])]
        near[a, b, c] = x[rows].mean()
    return np.array([near[tuple(c)] for c in cells])


checkpoint, shard, labelled, code = sys.argv[1:]
with h5py.File(checkpoint) as f:
    mean, std = f["normalization/mean"][()], f["normalization/std"][()]
    found = {k: f["calibration"][k][()] for k in ("count", "mean", "whiten", "quantile")}
with h5py.File(shard) as f:
    coords, columns, label = (f[k][()] for k in ("coords", "features", "labels"))
    point_voxel, point_index = f["point_voxel"][()], f["point_index"][()]
    ignored = f.attrs["ignore_label"]

f = ((columns - mean) / std).astype(np.float32).astype(float)
f /= np.linalg.norm(f, axis=1, keepdims=True)
n_classes, d = found["mean"].shape
known = label != ignored
own = []
for k in range(n_classes):
    x = f[label == k]
    assert len(x) == found["count"][k] > 0
    own.append((x - x.mean(axis=0)).T @ (x - x.mean(axis=0)) / len(x))
shared = sum(c * n for c, n in zip(own, found["count"])) / known.sum()
distance = np.full(len(f), np.inf)
for k in range(n_classes):
    covariance = own[k] + 3 * np.trace(shared) / d * np.eye(d)
    whiten = np.linalg.inv(np.linalg.cholesky(covariance))
    centre = whiten @ f[label == k].mean(axis=0)
    assert np.abs(np.triu(found["whiten"][k], 1)).max() == 0
    # Normalized columns are float32, and the covariance is inverted.
    assert np.allclose(found["whiten"][k], whiten, rtol=1e-4, atol=1e-4 * np.abs(whiten).max())
    assert np.allclose(found["mean"][k], centre, rtol=1e-4, atol=1e-4 * np.abs(centre).max())
    distance = np.minimum(distance, np.linalg.norm(f @ whiten.T - centre, axis=1))
cells = coords // 2
around = mean_around(cells, mean_around(cells, distance))

# A quantile is the upper end of a bin of the 11 leading bits of a float.
for q in (1, 250, 500, 950, 990):
    at = found["quantile"][q]
    assert (around[known] <= at * 1.0001).mean() >= q / 1000, q
    assert (around[known] < at * (1 - 2 ** -11) * 0.9999).mean() <= q / 1000, q

got = np.loadtxt(labelled, skiprows=1, usecols=4)[point_index.astype(int)] == int(code)
away = around[point_voxel] - found["quantile"][950]
sure = np.abs(away) > 1e-3 * found["quantile"][950]
wrong = (got != (away > 0)) & sure
assert not wrong.any(), "%d of %d points differ, by up to %g" % (
    wrong.sum(), sure.sum(), np.abs(away[wrong]).max())
assert sure.mean() > 0.9 and got.any() and not got.all()
alone = distance[point_voxel] > np.quantile(distance[known], 0.95)
print("%d of %d points doubtful, %d by their own voxel" % (got.sum(), len(got), alone.sum()))
assert (got != alone).any()
