#!/bin/sh
# meshio 5.3.5 and trimesh 5.2.0 write an integer attribute of NumPy's default type to PLY as
# "property int64", a type that PLY does not have. Each reads the other's file, plyfile 1.1.5
# refuses both. A reader of PLY that wants these files takes int64 and uint64 as types.
set -e
dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT
python3 -m venv "$dir/venv"
"$dir/venv/bin/pip" -q install numpy==2.4.6 meshio==5.3.5 trimesh==5.2.0 plyfile==1.1.5
cd "$dir"
"$dir/venv/bin/python" - <<'PYTHON'
import sys
import meshio, numpy as np, plyfile, trimesh

points = np.array([[0.0, 0, 0], [1, 0, 0], [0, 1, 0]])
label = np.array([1, 2, 3])
meshio.Mesh(points, [("triangle", np.array([[0, 1, 2]]))], point_data={"label": label}).write("meshio.ply")
mesh = trimesh.Trimesh(points, [[0, 1, 2]], process=False)
mesh.vertex_attributes["label"] = label
mesh.export("trimesh.ply", vertex_normal=False)
as_seen = True
for name in "meshio.ply", "trimesh.ply":
    head = open(name, "rb").read().split(b"end_header")[0].decode()
    line = [word for word in head.splitlines() if word.endswith("label")]
    back = meshio.read(name).point_data["label"].tolist()
    try:
        plyfile.PlyData.read(name)
        refusal = ""
    except plyfile.PlyHeaderParseError as error:
        refusal = str(error)
    print(name, line, "meshio reads", back, "plyfile:", refusal[:40] or "reads it")
    as_seen = as_seen and line == ["property int64 label"] and back == [1, 2, 3]
    as_seen = as_seen and "int64" in refusal
sys.exit(0 if as_seen else "behaviour has changed")
PYTHON
# Seen (the warning is about the faces):
#   Warning: PLY doesn't support 64-bit integers. Casting down to 32-bit.
#   meshio.ply ['property int64 label'] meshio reads [1, 2, 3] plyfile: line 8: field type 'int64' not in ['int8
#   trimesh.ply ['property int64 label'] meshio reads [1, 2, 3] plyfile: line 8: field type 'int64' not in ['int8
