#!/bin/sh
# LAZ against lazrs, both ways (laz_lazrs.py). Needs Python with laspy and lazrs, which
# nothing else does: SP_LAZ_PYTHON names one, else python3. LAZ files of one's own are
# compared too: SP_LAZ_FILES="a.laz b.laz".
python=${SP_LAZ_PYTHON-python3}
if ! "$python" -c 'import laspy, lazrs' 2>/dev/null; then
    echo "SKIPPED: $python has no laspy and lazrs (pip install laspy lazrs): LAZ is not compared"
    exit 77
fi
dir=$(mktemp -d) || exit 99
trap 'rm -rf "$dir"' EXIT
copy=$SP_BUILDDIR/tests/tools/laz_copy
cd "$dir" || exit 99
# shellcheck disable=SC2086
"$python" "$SP_SRCDIR/tests/label/laz_lazrs.py" "$copy" ${SP_LAZ_FILES-}
