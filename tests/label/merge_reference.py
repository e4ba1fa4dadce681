"""Merged predictions from plain ones, by brute force in float64.

merge_reference.py blocks SCAN SHARD...
    the points of each block and of its margin are those of the scan
merge_reference.py compare EVALUATIONS PLAIN MERGED SHARD...
    PLAIN, MERGED: folders of predictions, of PLAIN with logits
"""
import json
import os
import sys

import h5py
import numpy as np


def read_blocks(paths):
    """All samples of the shards, with the datasets that concern one."""
    blocks = []
    for path in paths:
        with h5py.File(path) as f:
            of, po, co = (f[k][()] for k in ("offsets", "point_offsets", "context_offsets"))
            for s in range(len(of) - 1):
                row, point, context = (slice(o[s], o[s + 1]) for o in (of, po, co))
                blocks.append(
                    dict(
                        path=path, row=row, point=point,
                        voxel_size=f.attrs["voxel_size"],
                        scan=f["scan"][s], square=f["block"][s], number=f["block_number"][s],
                        origin=f["origin"][s], coords=f["coords"][row],
                        subvoxel=f["subvoxel"][row], own_voxel=f["point_voxel"][point],
                        index=f["point_index"][point], label=f["point_labels"][point],
                        context_voxel=f["context_voxel"][context],
                        context_block=f["context_block"][context],
                        context_point=f["context_point"][context],
                    ))
    return blocks


def context_index(block, by_number):
    """The rows in the scan of the points of the margin."""
    return np.array([by_number[block["scan"], n]["index"][p]
                     for n, p in zip(block["context_block"], block["context_point"])], int)


def weigh(block):
    x0, y0, x1, y1, margin = block["square"]
    at = block["origin"] + block["voxel_size"] * (
        block["coords"] + (block["subvoxel"] + 0.5) / 256)
    if margin == 0:
        return np.ones(len(at))
    t = np.clip(np.minimum(at[:, :2] - [x0 - margin, y0 - margin],
                           [x1 + margin, y1 + margin] - at[:, :2]) / (2 * margin), 0, 1)
    return np.prod(t * t * (3 - 2 * t), axis=1)


def check_blocks(scan, paths):
    xy = np.loadtxt(scan, skiprows=1)[:, :2]
    blocks = read_blocks(paths)
    by_number = {(b["scan"], b["number"][0]): b for b in blocks}
    seen = np.zeros(len(xy), int)
    most = 0
    for b in blocks:
        x0, y0, x1, y1, margin = b["square"]
        seen[b["index"]] += 1
        both = np.concatenate([b["index"].astype(int), context_index(b, by_number)])
        most = max(most, len(both))
        assert len(set(both)) == len(both)
        away = np.max(np.stack([x0 - xy[:, 0], xy[:, 0] - x1, y0 - xy[:, 1], xy[:, 1] - y1]),
                      axis=0) - margin
        has = np.isin(np.arange(len(xy)), both)
        assert has[away < -1e-6].all() and not has[away > 1e-6].any(), b["number"]
        # All blocks that have one of these points are within the numbers that it states.
        for other in blocks:
            if np.isin(b["index"], context_index(other, by_number)).any():
                assert b["number"][1] <= other["number"][0] <= b["number"][2]
        voxels = np.floor((xy[both] - b["origin"][:2]) / b["voxel_size"]).astype(int)
        rows = np.concatenate([b["own_voxel"], b["context_voxel"]])
        assert (b["coords"][rows, :2] == voxels).all()
    assert (seen == 1).all()
    print("%d blocks, %d points, at most %d in one" % (len(blocks), len(xy), most))


def compare(evaluations, plain, merged, paths):
    blocks = read_blocks(paths)
    by_number = {(b["scan"], b["number"][0]): b for b in blocks}
    sums = {}
    n_classes = 0
    for b in blocks:
        with h5py.File(os.path.join(plain, os.path.basename(b["path"]))) as f:
            z = f["logits"][b["row"]].astype(float)
        n_classes = z.shape[1]
        p = np.exp(z - z.max(axis=1, keepdims=True))
        p *= (weigh(b) / p.sum(axis=1))[:, None]
        rows = np.concatenate([b["own_voxel"], b["context_voxel"]])
        both = np.concatenate([b["index"].astype(int), context_index(b, by_number)])
        for i, row in zip(both, rows):
            key = b["scan"], i
            sums[key] = sums.get(key, 0) + p[row]
    confusion = np.zeros((n_classes, n_classes), int)
    changed = near = 0
    for b in blocks:
        with h5py.File(os.path.join(plain, os.path.basename(b["path"]))) as f:
            before = f["point_labels"][b["point"]]
        with h5py.File(os.path.join(merged, os.path.basename(b["path"]))) as f:
            got = f["point_labels"][b["point"]]
        total = np.array([sums[b["scan"], i] for i in b["index"].astype(int)])
        two = np.sort(total / total.sum(axis=1, keepdims=True), axis=1)[:, -2:]
        is_close = two[:, 1] - two[:, 0] < 1e-4
        near += is_close.sum()
        assert ((got == total.argmax(axis=1)) | is_close).all()
        changed += (got != before).sum()
        known = b["label"] != 255
        np.add.at(confusion, (b["label"][known], got[known]), 1)
    last = json.loads(open(evaluations).read().splitlines()[-1])["merged"]
    assert last["point_confusion"] == confusion.tolist(), (last, confusion)
    assert last["points"] == confusion.sum()
    assert near < 0.01 * len(sums)
    print("%d points, %d changed by merging, %d undecided" % (len(sums), changed, near))


if sys.argv[1] == "blocks":
    check_blocks(sys.argv[2], sys.argv[3:])
else:
    compare(*sys.argv[2:5], sys.argv[5:])
