#!/bin/sh
# meshio and trimesh write labels of 64 bits as "property int64", which the PLY format does not
# have (its integers end at 32 bits). They read it back; plyfile refuses the header.
set -eu
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
if ! { python3 -m venv "$work/venv" &&
    "$work/venv/bin/pip" install -q numpy==2.4.6 meshio==5.3.5 trimesh==5.2.0 plyfile==1.1.5; }; then
    echo "cannot be installed here"
    exit 77
fi
echo "numpy==2.4.6 meshio==5.3.5 trimesh==5.2.0 plyfile==1.1.5"
"$work/venv/bin/python" - >"$work/out" <<'PYTHON'
import io
import os
import tempfile
import meshio
import numpy as np
import plyfile
import trimesh

points = np.arange(9, dtype=float).reshape(3, 3)
labels = np.array([1, 2, 3], dtype=np.int64)
path = tempfile.mktemp(suffix=".ply")
mesh = meshio.Mesh(points, [("triangle", [[0, 1, 2]])], point_data={"label": labels})
meshio.write(path, mesh, binary=True)
surface = trimesh.Trimesh(points, [[0, 1, 2]], process=False)
surface.vertex_attributes["label"] = labels
for name, data in (("meshio", open(path, "rb").read()), ("trimesh", surface.export(file_type="ply"))):
    print(name, "writes int64:", b"property int64 label" in data)
    try:
        plyfile.PlyData.read(io.BytesIO(data))
        print("plyfile reads it")
    except plyfile.PlyHeaderParseError:
        print("plyfile refuses", name)
print("meshio reads", meshio.read(path).point_data["label"].tolist())
os.remove(path)
PYTHON
cat "$work/out"
grep -qxF 'meshio writes int64: True' "$work/out" || { echo 'this has changed'; exit 1; }
grep -qxF 'trimesh writes int64: True' "$work/out" || { echo 'this has changed'; exit 1; }
grep -qxF 'plyfile refuses meshio' "$work/out" || { echo 'this has changed'; exit 1; }
grep -qxF 'plyfile refuses trimesh' "$work/out" || { echo 'this has changed'; exit 1; }
grep -qxF 'meshio reads [1, 2, 3]' "$work/out" || { echo 'this has changed'; exit 1; }
