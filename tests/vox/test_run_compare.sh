#!/bin/sh
# spvox compare: scores of known cases by hand, matching by order, position and field, lists
# of classes, folders on several ranks, and what is refused. With numpy (optional): random
# pairs against scores that a script computes by itself.
. "$SP_SRCDIR/tests/fixtures/program.sh"

SPTRAIN=$SP_BUILDDIR/spvox # what run starts

cat >a.txt <<'TEXT'
x y z id label
0 0 0 10 1
1 0 0 11 1
2 0 0 12 2
3 0 0 13 2
4 0 0 14 3
TEXT
sed 's/^1 0 0 11 1/1 0 0 11 2/; s/^4 0 0 14 3/4 0 0 14 9/' a.txt >b.txt
scores='miou=0.291667 accuracy=0.600000 kappa=0.411765 points=5'

# Class 1: 1 of 2 points, 2: 2 of 3, 3: 0 of 1, 9: 0 of 1. Expected accuracy 8 / 25.
run 1 0 compare a.txt b.txt
says out "^$scores\$"
tail -n 1 out | grep -qx "$scores" || fail "the scores are not the last line"
says out '^1 *2 *0.5000 *1.0000 *0.5000 *0.6667$'
says out '^3 *1 *0.0000 *- *0.0000 *0.0000$'
says out '^9 *0 *0.0000 *0.0000 *- *0.0000$'

# The same points in another order: by position, by a field, or refused.
{ sed 1q b.txt && sed 1d b.txt | sort -r; } >turned.txt
run 1 0 compare a.txt turned.txt
says out "^$scores\$"
says err 'a.txt and turned.txt .*matched by position'
run 1 0 compare a.txt turned.txt --json
test "$(wc -l <out)" = 1 && says out '^{"a":"a.txt",' || fail "more than the JSON object"
run 1 0 compare a.txt turned.txt --match id
says out "^$scores\$"
run 1 3 compare a.txt turned.txt --match order
says err 'differ in the position of point 0; --match position'
sed 's/^4 0 0/4 0 0.5/' turned.txt >moved.txt
run 1 3 compare a.txt moved.txt
says err 'moved.txt: 1 of 5 points have no partner in a.txt; the first is point 0 at 4 0 0.5'
sed '$d' b.txt >short.txt
run 1 3 compare a.txt short.txt
says err 'do not have the same number of points'
run 1 3 compare a.txt short.txt --match position
says err 'a.txt has 5 points, short.txt has 4'
sed '$d' turned.txt >short_turned.txt
run 1 3 compare a.txt short_turned.txt
says err 'a.txt has 5 points, short_turned.txt has 4'
cat out err | grep -q 'matched by position' && fail "it tells of a match, and there is none"

# Two points at one place are matched in the order of the files.
printf 'x y z label\n0 0 0 1\n0 0 0 2\n5 0 0 3\n' >double_a.txt
printf 'x y z label\n5 0 0 3\n0 0 0 1\n0 0 0 2\n' >double_b.txt
run 1 0 compare double_a.txt double_b.txt
says out '^miou=1.000000 accuracy=1.000000 kappa=1.000000 points=3$'

# Codes that are ignored in A leave; codes of B without a class are wrong.
run 1 0 compare a.txt b.txt --ignore 3
says out '^miou=0.583333 accuracy=0.750000 kappa=0.500000 points=4$'
run 1 0 compare a.txt b.txt --map '1=one,2:3=two'
says out '^miou=0.500000 accuracy=0.600000 .*points=5$'
says out 'no class: 1$'
run 1 2 compare a.txt b.txt --ignore 1,x
says err 'expected codes from 0 to 65535 divided by commas'

# A bound on the mean IoU.
run 1 0 compare a.txt b.txt --least-miou 0.29
run 1 1 compare a.txt b.txt --least-miou 0.3
says err 'the mean IoU 0.291667 is below --least-miou 0.3'
run 1 2 compare a.txt b.txt --least-miou 2
says err 'least-miou 2: expected a number from 0 to 1'

# JSON: one object on standard output, the scores on standard error.
run 1 0 compare a.txt b.txt --json
says out '"classes":\["1","2","3","9"\]'
says out '"confusion":\[\[1,1,0,0\],\[0,2,0,0\],\[0,0,0,1\],\[0,0,0,0\]\]'
says err "^$scores\$"
[ "$(wc -l <out)" = 1 ] || fail "more than one line of JSON"

# Lists of classes without positions: .label has instances in its upper bits.
printf '\001\000\005\000\002\000\000\000' >a.label
printf '\001\000\000\000\001\000\007\000' >b.label
run 1 0 compare a.label b.label
says out '^miou=0.250000 accuracy=0.500000 kappa=0.000000 points=2$'
run 1 3 compare a.label b.label --match position
says err 'a list of classes has neither positions nor fields'
printf 'abc' >bad.label
run 1 3 compare a.label bad.label
says err 'bad.label: 3 bytes, expected 4 for each point'

# Folders: all files of A, on any number of ranks; other endings of B are found.
mkdir -p A/deep B/deep
cp a.txt A/one.txt && cp b.txt B/one.txt
cp a.label A/deep/two.label && cp b.label B/deep/two.label
for ranks in 1 2 3; do
    run $ranks 0 compare A B
    cp out "folder-$ranks"
    says out '^deep/two.label: points=2 miou=0.2500'
    says out '^one.txt: points=5 miou=0.2917'
    says out 'points=7$'
    cmp -s "folder-$ranks" folder-1 || fail "$ranks ranks print something else"
done
# A file is found by its path, else by its path with another ending, among names that
# begin alike.
mkdir C D
for f in a a.b a.b.c ab a-b; do cp a.txt C/$f.txt && cp b.txt D/$f.pts; done
cp a.txt D/ab.txt
run 1 0 compare C D
says out '^ab.txt: points=5 miou=1.0000'
test "$(grep -c 'txt: points=5 miou=0.2917' out)" = 4 || fail "files with other endings"
cp a.txt D/a.b.xyz
run 1 3 compare C D
says err 'C/a.b.txt: D has 2 files of this name: give the two files'

cp a.txt B/more.txt
run 1 0 compare A B
says err '1 of 3 files have no partner in A'
cp a.txt A/lone.txt
run 2 3 compare A B
says err 'A/lone.txt: B has no file of this name'
run 1 2 compare A b.txt
says err 'expected two files or two folders'
run 1 3 compare a.txt absent.txt
run 1 3 compare a.label absent.label
run 1 2 compare a.txt
printf 'x y z\n0 0 0\n' >bare.txt
run 1 3 compare bare.txt a.txt
says err 'bare.txt: no classes; --label-field'

find_python numpy
SPVOX=$SP_BUILDDIR/spvox "$python" - <<'PYTHON' || fail "scores differ from those of numpy"
import json, os, subprocess
import numpy as np

rng = np.random.default_rng(3)
for case in range(12):
    n, k = int(rng.integers(1, 3000)), int(rng.integers(1, 9))
    a = rng.integers(0, k, n)
    b = np.where(rng.random(n) < 0.7, a, rng.integers(0, k + 1, n))
    ignore = [int(c) for c in rng.choice(k, int(rng.integers(0, k)), replace=False)]
    np.save("a.npy", a.astype(rng.choice(["<i8", "<u1", "<i4"])))
    np.save("b.npy", b.astype("<u2"))
    out = subprocess.run([os.environ["SPVOX"], "compare", "a.npy", "b.npy", "--json"] +
                         (["--ignore", ",".join(map(str, ignore))] if ignore else []),
                         capture_output=True, text=True)
    keep = ~np.isin(a, ignore)
    if not keep.any():
        assert out.returncode == 3, out
        continue
    assert out.returncode == 0, out
    found = json.loads(out.stdout)
    a, b = a[keep], b[keep]
    classes = [c for c in range(k + 1)
               if c not in ignore and ((a == c).any() or (b == c).any())]
    confusion = np.array([[np.sum((a == r) & (b == c)) for c in classes] for r in classes])
    tp, row = np.diag(confusion), np.array([np.sum(a == c) for c in classes])
    col = confusion.sum(0)
    with np.errstate(all="ignore"):
        iou = tp / (row + col - tp)
    p_e = np.sum(row * col) / a.size**2
    assert found["classes"] == [str(c) for c in classes]
    assert found["confusion"] == confusion.tolist()
    assert found["points"] == a.size and abs(found["accuracy"] - tp.sum() / a.size) < 1e-12
    assert abs(found["miou"] - np.nanmean(iou)) < 1e-12
    if p_e < 1:
        assert abs(found["kappa"] - (tp.sum() / a.size - p_e) / (1 - p_e)) < 1e-12
PYTHON
