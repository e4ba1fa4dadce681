#!/bin/sh
# The temperature of calibrate, its features, and the points that --doubtful-features finds
# with them, equal their definitions, computed with numpy. The features of an earlier version's
# calibration are not used. Skipped without numpy and h5py.
. "$SP_SRCDIR/tests/fixtures/program.sh"
find_python "numpy, h5py"
awk 'BEGIN {
    srand(5); print "x y z intensity label"
    for (i = 0; i < 5000; i++) {
        x = 40 * rand(); y = 30 * rand()
        c = x + 3 * sin(y) < 17 ? 1 : y < 12 ? 2 : 3
        z = c == 1 ? rand() : 6 * rand()
        if (x > 30 && y > 20) { c = 9; z = 12 + rand() }
        printf "%.3f %.3f %.3f %d %d\n", 500 + x, 70 + y, z, 40 * c + 60 * rand(), c
    }
}' >a.txt
spvox convert --voxel-size 0.75 --map "1=low,2=high,3=other" --points \
    --features intensity,height --out s a.txt
deck 'layers = ( { name = "last"; op = "conv"; out = 3; kernel = 1; } );' \
    'train = "s-*.h5"; val = "s-*.h5"; voxel_size = 0.75;' 'size = 1; eval_size = 1;' \
    'steps = 20; warmup_steps = 2;'
run 1 0 base.deck run.dir=r
run 1 0 predict base.deck run.dir=p run.checkpoint=r/checkpoints/best.h5 'data.val="s-*.h5"' \
    run.logits=true
run 2 0 calibrate r
"$python" "$SP_SRCDIR/tests/label/temperature_reference.py" s-*.h5 p/predictions/s-*.h5 out ||
    fail "another temperature"
run 1 0 label r a.txt --out o --class-field class --doubtful-features 0.95 --doubtful 77 \
    --field-type float32
head -2 o/a.txt
"$python" "$SP_SRCDIR/tests/label/doubt_reference.py" r/checkpoints/best.h5 s-*.h5 o/a.txt 77 ||
    fail "another definition"

# The first version had one W of all classes.
"$python" - <<'PYTHON' || fail "an older calibration"
import h5py

def crc32c(data):
    crc = 0xffffffff
    for byte in data:
        crc ^= byte
        for _ in range(8):
            crc = crc >> 1 ^ (0x82f63b78 if crc & 1 else 0)
    return crc ^ 0xffffffff

with h5py.File("r/checkpoints/best.h5", "r+") as f:
    all_w = f["calibration/whiten"]
    w, of_all, kind = all_w[()], all_w.attrs["crc32c"], all_w.attrs["crc32c"].dtype
    assert crc32c(w.tobytes()) == of_all
    del f["calibration/whiten"]
    f["calibration/whiten"] = w[0]
    f["calibration/whiten"].attrs.create("crc32c", crc32c(w[0].tobytes()), dtype=kind)
PYTHON
run 1 2 label r/checkpoints/best.h5 a.txt --out old --doubtful-features 0.95
says err 'does not have its classes. features: `sptrain calibrate` finds them'
run 1 0 calibrate r
run 1 0 label r a.txt --out again --class-field class --doubtful-features 0.95 --doubtful 77 \
    --field-type float32
same_files o again "after another calibrate"
