#!/bin/sh
# A convolution of spconv 2 with kernel 1 and stride 1 multiplies by the memory of its weight
# as [c_in, c_out], although the weight has the shape [c_out, 1, 1, 1, c_in] of all others. The
# same numbers in the centre of a 3^3 kernel are read by their shape. Whoever takes such a
# checkpoint to another program by its shapes gets other outputs unless c_in is c_out and the
# matrix symmetric. (torch is Debian 12's: it is small and needs no GPU.)
set -eu
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
mkdir -p "$work/deb/partial"
if ! { apt-get install -qq -y --download-only --no-install-recommends -o Debug::NoLocking=1 \
    -o Dir::Cache::archives="$work/deb/" python3-torch=1.13.1+dfsg-4 >"$work/log" 2>&1 &&
    python3 -m pip install -q --target "$work/pip" spconv==2.3.8 'numpy==1.26.4' \
        >>"$work/log" 2>&1; }; then
    cat "$work/log"
    echo "cannot be installed here"
    exit 77
fi
for deb in "$work"/deb/*.deb; do
    dpkg -x "$deb" "$work/root"
done
libraries=$(find "$work/root/usr/lib" -name '*.so*' -printf '%h:' | tr ':' '\n' | sort -u |
    tr '\n' ':')
cat >"$work/a.py" <<'PYTHON'
import torch
import spconv
import spconv.pytorch as sp

print("torch", torch.__version__, "spconv", spconv.__version__)
w = torch.arange(6.0).reshape(3, 1, 1, 1, 2)
print("weight by its shape, [c_in][c_out]:", w[:, 0, 0, 0, :].T.tolist())
at = torch.tensor([[0, 0, 0, 0], [0, 5, 5, 5]], dtype=torch.int32)
for k in (1, 3):
    conv = sp.SubMConv3d(2, 3, k, bias=False, algo=spconv.core.ConvAlgo.Native)
    with torch.no_grad():
        conv.weight.zero_()
        conv.weight[:, k // 2, k // 2, k // 2, :] = w[:, 0, 0, 0, :]
        y = conv(sp.SparseConvTensor(torch.eye(2), at, [8, 8, 8], 1)).features
    print("kernel", k, list(conv.weight.shape), "outputs of unit inputs", y.tolist())
PYTHON
LD_LIBRARY_PATH=$libraries PYTHONPATH=$work/pip:$work/root/usr/lib/python3/dist-packages \
    /usr/bin/python3 "$work/a.py" >"$work/out"
cat "$work/out"
same() {
    grep -qF "$1" "$work/out" || { echo 'this has changed'; exit 1; }
}
same 'kernel 1 [3, 1, 1, 1, 2] outputs of unit inputs [[0.0, 1.0, 2.0], [3.0, 4.0, 5.0]]'
same 'kernel 3 [3, 3, 3, 3, 2] outputs of unit inputs [[0.0, 2.0, 4.0], [1.0, 3.0, 5.0]]'
