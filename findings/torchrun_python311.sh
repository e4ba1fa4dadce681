#!/bin/sh
# torchrun of Debian 12 (python3-torch 1.13.1 with Python 3.11) starts no process: since Python
# 3.11 iterating over an IntFlag skips its zero member, so that Std.from_str("0"), the default of
# --redirects and --tee, is None instead of Std.NONE, and start_processes ends with
# "'NoneType' object has no attribute 'get'". Takes the class out of the package and calls it;
# ends with 0 as long as that is so.
set -e
dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT
cd "$dir"
echo 'deb http://deb.debian.org/debian bookworm main' >sources.list
mkdir -p lists/partial cache/archives/partial
apt="apt-get -q -o Dir::Etc::sourcelist=$dir/sources.list -o Dir::Etc::sourceparts=-
    -o Dir::State::lists=$dir/lists -o Dir::Cache=$dir/cache"
$apt update >log 2>&1 || { cat log; exit 1; }
$apt download python3-torch=1.13.1+dfsg-4 >log 2>&1 || { cat log; exit 1; }
dpkg -x python3-torch_*.deb root
api=root/usr/lib/python3/dist-packages/torch/distributed/elastic/multiprocessing/api.py
/usr/bin/python3 - "$api" <<'PY'
import ast, re, sys
from enum import IntFlag
from typing import Dict, Union

source = open(sys.argv[1]).read()
tree = ast.parse(source)
for node in tree.body:
    names = [t.id for t in getattr(node, "targets", []) if isinstance(t, ast.Name)]
    if getattr(node, "name", "") == "Std" or names[:1] in (["_VALUE_REGEX"], ["_MAPPING_REGEX"]):
        exec(ast.get_source_segment(source, node), globals())
print("python", sys.version.split()[0], "- torch 1.13.1+dfsg-4")
value = Std.from_str("0")
print('Std.from_str("0") =', value, "- members seen by iteration:", list(Std))
sys.exit(0 if value is None and sys.version_info >= (3, 11) else 1)
PY
