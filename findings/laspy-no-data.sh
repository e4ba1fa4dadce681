#!/bin/sh
# An extra dimension of a LAS file can say which value means "no data". laspy writes the value
# into the record, and hands it out as a measurement when it reads: a mean is far off.
set -eu
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
if ! { python3 -m venv "$work/venv" &&
    "$work/venv/bin/pip" install -q numpy==2.4.6 laspy==2.7.0; }; then
    echo "cannot be installed here"
    exit 77
fi
echo "numpy==2.4.6 laspy==2.7.0"
"$work/venv/bin/python" - >"$work/out" <<'PYTHON'
import io
import laspy
import numpy as np

header = laspy.LasHeader(point_format=6, version="1.4")
header.add_extra_dim(laspy.ExtraBytesParams("amplitude", "f4", no_data=np.array([-99.99], "f4")))
las = laspy.LasData(header)
las.x = las.y = las.z = [1.0, 2.0]
las["amplitude"] = np.array([-99.99, 5], dtype="f4")
to = io.BytesIO()
las.write(to, do_compress=False)
to.seek(0)
back = laspy.read(to)
info = back.header.vlrs.get("ExtraBytesVlr")[0].extra_bytes_structs[0]
print("no_data %.2f" % np.frombuffer(bytes(info)[40:48], dtype="f8")[0])
print("read", [round(float(v), 2) for v in back["amplitude"]])
print("mean %.3f" % np.mean(back["amplitude"]))
PYTHON
cat "$work/out"
grep -qxF 'no_data -99.99' "$work/out" || { echo 'this has changed'; exit 1; }
grep -qxF 'read [-99.99, 5.0]' "$work/out" || { echo 'this has changed'; exit 1; }
grep -qxF 'mean -47.495' "$work/out" || { echo 'this has changed'; exit 1; }
