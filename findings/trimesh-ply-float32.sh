#!/bin/sh
# trimesh holds coordinates in float64 and writes PLY vertices in float32, which the format does
# not ask for: points in map coordinates move by centimetres, without a warning. Its OFF export
# of the same object keeps the digits.
set -eu
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
if ! { python3 -m venv "$work/venv" &&
    "$work/venv/bin/pip" install -q numpy==2.4.6 trimesh==5.2.0; }; then
    echo "cannot be installed here"
    exit 77
fi
echo "numpy==2.4.6 trimesh==5.2.0"
"$work/venv/bin/python" - >"$work/out" <<'PYTHON'
import io
import numpy as np
import trimesh

points = np.array([[500000.123, 5000000.456, 100.789]])
cloud = trimesh.PointCloud(points)
data = cloud.export(file_type="ply")
back = trimesh.load(io.BytesIO(data), file_type="ply").vertices
print("in memory", cloud.vertices.dtype)
print("written as float", b"property float y" in data)
print("moved by %.3f m" % np.abs(np.asarray(back) - points).max())
mesh = trimesh.Trimesh(np.vstack([points, points + 1, points + [1, 0, 0]]), [[0, 1, 2]], process=False)
print("OFF keeps", "5000000.456" in mesh.export(file_type="off"))
PYTHON
cat "$work/out"
grep -qxF 'in memory float64' "$work/out" || { echo 'this has changed'; exit 1; }
grep -qxF 'written as float True' "$work/out" || { echo 'this has changed'; exit 1; }
grep -qxF 'moved by 0.044 m' "$work/out" || { echo 'this has changed'; exit 1; }
grep -qxF 'OFF keeps True' "$work/out" || { echo 'this has changed'; exit 1; }
