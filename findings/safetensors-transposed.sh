#!/bin/sh
# safetensors.numpy.save_file writes the memory of an array that is transposed, with the shape
# of the transposed array: other values come back, without a warning. An array that is a
# kernel of another framework is often transposed when it is exported.
set -eu
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
if ! { python3 -m venv "$work/venv" &&
    "$work/venv/bin/pip" install -q numpy==2.4.6 safetensors==0.8.0; }; then
    echo "cannot be installed here"
    exit 77
fi
echo "numpy==2.4.6 safetensors==0.8.0"
"$work/venv/bin/python" - >"$work/out" <<'PYTHON'
import numpy as np
import safetensors.numpy as st

path = __import__("tempfile").mktemp()
a = np.arange(6, dtype=np.float32).reshape(2, 3).T
st.save_file({"a": a}, path)
print("saved", a.tolist())
print("loaded", st.load_file(path)["a"].tolist())
st.save_file({"a": np.ascontiguousarray(a)}, path)
print("copied first", st.load_file(path)["a"].tolist())
__import__("os").remove(path)
PYTHON
cat "$work/out"
grep -qxF 'saved [[0.0, 3.0], [1.0, 4.0], [2.0, 5.0]]' "$work/out" || { echo 'this has changed'; exit 1; }
grep -qxF 'loaded [[0.0, 1.0], [2.0, 3.0], [4.0, 5.0]]' "$work/out" || { echo 'this has changed'; exit 1; }
grep -qxF 'copied first [[0.0, 3.0], [1.0, 4.0], [2.0, 5.0]]' "$work/out" || { echo 'this has changed'; exit 1; }
