#!/bin/sh
# spbench gives one object a line with the fields that programs read, and ratios that a
# machine can have.
bench=$SP_BUILDDIR/spbench
work=`mktemp -d` || exit 99
trap 'rm -rf "$work"' EXIT
bad=0

value_of='function value(key) {
    match($0, "\"" key "\":[-+.0-9e]+")
    return substr($0, RSTART + length(key) + 3, RLENGTH - length(key) - 3) + 0
}'

# check NAME...: the lines of $work/out; each name must be among them
keys="name n ms gflops ceiling ratio floor_ms precision device"
check() {
    for key in $keys; do
        if grep -v "\"$key\":" "$work/out"; then
            echo "line without $key (above)"
            bad=1
        fi
    done
    awk '
    function value(key) {
        if (!match($0, "\"" key "\":[-+.0-9e]+")) return "none"
        return substr($0, RSTART + length(key) + 3, RLENGTH - length(key) - 3) + 0
    }
    !/^{.*}$/ { print "not an object: " $0; bad = 1 }
    value("ms") <= 0 { print "no time: " $0; bad = 1 }
    value("ratio") != "none" && (value("ratio") <= 0 || value("ratio") >= limit) {
        print "implausible ratio: " $0; bad = 1 }
    /"device":"emulated/ && value("ratio") != "none" {
        print "a ratio of an emulated device: " $0; bad = 1 }
    /"limit":"flops"/ && value("ceiling") != "none" && !/"device":"emulated/ {
        off = value("gflops") / value("ceiling") / value("ratio") - 1
        if (off > 1e-6 || off < -1e-6) { print "ratio is not gflops / ceiling: " $0; bad = 1 }
    }
    END { exit bad }' limit="$limit" "$work/out" || bad=1
    for name; do
        grep -q "\"name\":\"$name\"" "$work/out" || { echo "no $name"; bad=1; }
    done
}

# measured COMMAND...: what other programs interrupt is a failed measurement (status 8), and
# is repeated as its message says.
measured() {
    for try in 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 19 20; do
        "$@" >"$work/out" 2>"$work/err"
        status=$?
        test $status = 8 || return $status
    done
    return 8
}
# run ARGUMENTS...
run() {
    measured "$bench" "$@" || { echo "spbench $* failed:"; cat "$work/err"; bad=1; }
}

limit=1.05 # above it no row is printed
run ops --quick --json --voxels 2000 --channels 16
check multiply_add stream conv3_forward conv3_grad_input conv3_grad_weight down2_forward \
    conv3_rebuilt down2_rebuilt up2_forward conv1_forward batchnorm batchnorm_grad relu add loss sgd adamw
grep '"name":"conv3_forward"' "$work/out" | grep -q '"n":2000,"pairs":[0-9]*,"c_in":16,"c_out":16,' || {
    echo "conv3_forward has other sizes"; bad=1; }
grep '"name":"add"' "$work/out" | grep -q '"gflops":null,"gbytes_s":[0-9]' &&
    grep '"name":"conv3_rebuilt"' "$work/out" | grep -q '"gbytes_s":null' || {
    echo "a rate of work that is not known"; cat "$work/out"; bad=1; }

run plan --quick --json --voxels 2000
check plan_minkunet18 plan_minkunet18_stem3 plan_minkunet34 plan_dummy
grep warning "$work/err" && { echo "plan warns of a key that nobody gave"; bad=1; }

# ---- shapes: pairs of a voxel; each a function of its number; files of them ----
for shape in "terrain 50000 8 10" "surface 50000 8.2 9.2" "random 50000 1.0 1.03" \
    "lidar 94444 2.8 3.3"; do
    set -- $shape
    run ops --quick --json --repeats 1 --voxels $2 --channels 1 --shape $1
    sed -n 's/.*"name":"conv3_forward","n":\([0-9]*\),"pairs":\([0-9]*\).*/\1 \2/p' \
        "$work/out" | awk -v want=$2 -v lo=$3 -v hi=$4 '{ t = $2 / $1; n = $1 }
        END { exit !(n == want && t > lo && t < hi) }' || {
        echo "$1: not $2 voxels of $3 to $4 pairs"; bad=1; }
    run voxels --shape $1 --voxels 3000 --samples 3 --out "$work/$1.h5"
    "$SP_BUILDDIR/spvox" info "$work/$1.h5" | grep -q 'samples 3  voxels 9000' || {
        echo "$1: not 3 samples of 3,000 voxels"; bad=1; }
done
run voxels --shard "$work/lidar.h5" --out "$work/lidar.raw"
head -n 1 "$work/lidar.raw" >"$work/out"
grep -qx 'sptrain-raw 1 samples 3 voxels 9000 features 4 classes 20' "$work/out" || {
    echo "raw: header"; bad=1; }
# offsets, coordinates, features, labels
size=$((`wc -c <"$work/out"` + 8 * 4 + 9000 * (12 + 16 + 4)))
[ `wc -c <"$work/lidar.raw"` = $size ] || { echo "raw: not $size bytes"; bad=1; }
run io --quick --json --voxels 2000
check read read_verified
# A file of one voxel is read no faster than plainly. Arrays in chunks count too (1,278 voxels
# of 21 bytes), and have no plain reading to compare with.
run voxels --voxels 1 --out "$work/small.h5"
run io --quick --json --shard "$work/small.h5"
check read read_verified
shards=$SP_BUILDDIR/tests/tools/make_shards
"$shards" bare-chunked "$work/chunked.h5" && "$shards" box "$work/zero.h5" 2 0 4 2 3 0 || bad=1
run io --quick --json --shard "$work/chunked.h5"
check read read_verified
awk "$value_of"'/"name":"read/ {
    bytes = value("gbytes_s") * value("ms") * 1e6
    n += /"ceiling":null,"ratio":null/ && bytes > 26837 && bytes < 26839
} END { exit n != 2 }' "$work/out" || { echo "io: chunks"; cat "$work/out"; bad=1; }

cd "$work" || exit 99
run step --quick --json "$SP_SRCDIR/input/dummy.deck"
check step step_forward step_backward step_update loader_plan

# Every convolution of the network in its three directions but the first, whose input has
# no gradient.
layers() {
    run step --layers --json "$@"
    check step layers norm_apply norm_grad_apply loss sgd
    for row in 'conv_forward","layer":"conv2","level":1,"kernel":3,"stride":2,' \
        'conv_grad_weight","layer":"conv1"' 'conv_grad_input","layer":"convtr3","level":0' \
        'conv_grad_input","layer":"conv4"' 'norm_apply","layer":"bn2"'; do
        grep -q "\"name\":\"$row" "$work/out" || { echo "layers: no $row"; bad=1; }
    done
    [ `grep -c '"name":"conv_[fg].*"pairs":[1-9].*"floor_ms":[0-9]' "$work/out"` = 11 ] || {
        echo "not 11 rows of convolutions:"; cat "$work/out"; bad=1; }
    awk "$value_of"'
    /"share":/ && !/"name":"layers"/ { shares += value("share") }
    /"name":"layers"/ { whole = value("share") }
    END { exit !(whole > 0 && shares / whole - 1 < 1e-9 && 1 - shares / whole < 1e-9) }
    ' "$work/out" || { echo "shares do not add up"; cat "$work/out"; bad=1; }
}
"$SP_BUILDDIR/spvox" scene --out one --samples 1 --extent 20 --seed 3 >"$work/err" 2>&1 || bad=1
cat >one.deck <<'END'
data : { train = ["one*.h5"]; voxel_size = 0.5; };
augment : { flip = false; rotate_z = false; scale = [1.0, 1.0]; drop = 0.0; jitter = 0.0; };
batch : { size = 1; };
net : { family = "dummy"; };
END
layers --quick one.deck
# Their work is the step's. Of times on a machine with other programs no such thing is known.
awk "$value_of"'
/"name":"conv_[fg]/ { flops += value("gflops") * value("ms") }
/"name":"step"/ { step = value("gflops") * value("ms") }
END { exit !(step > 0 && flops > 0.999 * step && flops < 1.001 * step) }
' "$work/out" || { echo "the layers are not the step"; cat "$work/out"; bad=1; }

# ---- an evaluation: the products of the step's forward pass, and no others ----
forward=$(awk "$value_of"'
/"name":"conv_forward/ { flops += value("gflops") * value("ms") }
END { print flops / 1000 }' "$work/out")
# Weights that are frozen have no gradient, nor has what stands before them.
run step --quick --json --repeats 2 one.deck \
    'train.freeze=["conv1", "bn", "conv2", "convtr3"]'
awk -v forward="$forward" "$value_of"'
/"name":"step"/ { ratio = value("gflop") / forward }
END { exit !(ratio > 1.001 && ratio < 1.2) }' "$work/out" || {
    echo "step: not the work of a forward pass of $forward GFLOP and the last weights"
    cat "$work/out"; bad=1; }
"$SP_BUILDDIR/spvox" scene --out two --samples 2 --extent 20 --seed 3 >"$work/err" 2>&1 || bad=1
run eval --quick --json one.deck 'data.val=["one*.h5"]' 'data.train=[]'
check eval eval_forward eval_count loader_plan loader_read
awk -v forward="$forward" "$value_of"'
/"name":"eval"/ {
    whole = value("ms")
    ratio = value("gflop") / forward
    is_counted = value("samples") == 1 && value("voxels") == value("n") && value("n") > 0
}
/"name":"eval_forward"/ { part = value("ms") }
END { exit !(is_counted && ratio > 0.999 && ratio < 1.001 && part > 0 && whole > 0) }
' "$work/out" || { echo "eval: not the work of a forward pass of $forward GFLOP"
    cat "$work/out"; bad=1; }
measured $MPIEXEC -n 2 "$bench" eval --quick --json one.deck 'data.val=["two*.h5"]' || {
    echo "eval on 2 ranks"; cat "$work/err"; bad=1; }
grep '"name":"eval"' "$work/out" | grep -q '"ranks":2,"samples":2,.*"rank_samples":\[1,1\]' || {
    echo "eval on 2 ranks: not one sample each"; cat "$work/out"; bad=1; }
measured $MPIEXEC -n 2 "$bench" eval --quick one.deck 'data.val=["one*.h5"]'
[ $? = 3 ] && grep -q 'rank 1 had no voxel in some of 5 passes .* with batch.eval_size 2' "$work/err" || {
    echo "eval of one sample on 2 ranks is a rate"; cat "$work/err"; bad=1; }
"$bench" eval --quick one.deck 'data.val=[]' >"$work/out" 2>"$work/err"
[ $? = 2 ] || { echo "eval without samples"; cat "$work/err"; bad=1; }

# ---- what a GPU would do in a step, counted: as many convolutions, nothing computed ----
code=$SP_SRCDIR/tests/results/code-sm_90.txt
run roofline --json --precision bf16 --code "$code" one.deck
[ `grep -c '"name":"conv_[fg].*"kernel":"[cw].*"weight_bytes":[1-9].*"predicted_us":[1-9]' \
    "$work/out"` = 11 ] || { echo "roofline: not 11 convolutions"; cat "$work/out"; bad=1; }
# all rows of the totals add up to the step
awk '
function value(key) {
    match($0, "\"" key "\":[-+.0-9e]+")
    return substr($0, RSTART + length(key) + 3, RLENGTH - length(key) - 3) + 0
}
/"name":"step, predicted/ { step = value("predicted_us"); next }
/"name":"3\^3 layers/ { cubes = value("gathered_bytes"); next }
/"name":"total/ { total += value("predicted_us"); next }
{ rows += value("predicted_us") }
END {
    exit !(step > 0 && cubes > 0 && total / step - 1 < 1e-9 && 1 - total / step < 1e-9 &&
        rows / step - 1 < 1e-9 && 1 - rows / step < 1e-9)
}' "$work/out" || { echo "roofline: sums"; cat "$work/out"; bad=1; }
run roofline --wgmma --precision bf16 --code "$code" one.deck
grep -q '^step, predicted, no device' "$work/out" || { echo "roofline: no sum"; bad=1; }
echo "conv bf16 32 4x1 whole 1 2" >damaged.txt
head -n 3 "$code" >short.txt

# ---- ceilings: an interruption fixes none, and no rate above one is a row ----
# Wall time, which tells interruptions. The work of the ceiling's timing is more than what
# can be interrupted unnoticed: 0.05 MFLOP.
for at in 0 3 9; do
    SP_TEST_FAULT=pause@0:peak:$at
    export SP_TEST_FAULT
    run ops --quick --json --repeats 1 --threads 2 --voxels 300 --channels 8
    unset SP_TEST_FAULT
    grep -q '^fault: pause' "$work/err" || { echo "no pause at timing $at"; bad=1; }
    check multiply_add stream conv3_forward
    [ `grep '"name":"\(multiply_add\|stream\)"' "$work/out" | grep -c '"cpu_ms":null'` = 2 ] || {
        echo "CPU time that was not measured"; cat "$work/out"; bad=1; }
    awk '/"name":"multiply_add"/ { match($0, /"ms":[-+.0-9e]+/)
            ms = substr($0, RSTART + 5, RLENGTH - 5)
            match($0, /"gflops":[-+.0-9e]+/)
            gflop = substr($0, RSTART + 9, RLENGTH - 9) * ms / 1e3 }
        END { exit !(gflop > 5e-5) }' "$work/out" || {
        echo "paused at timing $at: a ceiling of hardly any work"; cat "$work/out"; bad=1; }
done
for form in --json ""; do
    SP_TEST_FAULT=busy@0:peak:0 "$bench" ops --quick $form --repeats 1 \
        --voxels 3000 --channels 32 >"$work/out" 2>"$work/err"
    [ $? = 8 ] || { echo "busy ceilings $form: not exit 8"; cat "$work/err"; bad=1; }
    grep -q 'error: conv3_forward, n=3000, c=32,32: .* times the ceiling of .*: a failed measurement' \
        "$work/err" || { echo "busy ceilings $form: other words"; cat "$work/err"; bad=1; }
    grep -q 'multiply_add' "$work/out" && ! grep -q conv3_forward "$work/out" || {
        echo "busy ceilings $form: rows"; cat "$work/out"; bad=1; }
done

# ---- steps of two ranks count the work of both; a path that is given twice counts once ----
run voxels --shape lidar --voxels 3000 --out twin-a.h5
cp twin-a.h5 twin-b.h5
cat >twin.deck <<'END'
data : { voxel_size = 0.05; };
augment : { flip = false; rotate_z = false; scale = [1.0, 1.0]; drop = 0.0; jitter = 0.0; };
batch : { size = 2; };
net : { family = "dummy"; };
END
two_ranks() { # two_ranks FILE FILE
    measured $MPIEXEC -n 2 "$bench" step --quick --json --repeats 3 twin.deck \
        data.train="[\"$1\", \"$2\"]"
}
two_ranks twin-a.h5 twin-b.h5 || { cat "$work/err"; bad=1; }
check step
for part in '"name":"step","n":6000,' '"clock":"wall"' '"ranks":2,"samples":2,"voxels":6000,"gflop":0' \
    '"samples_of_rank":[1,1],"voxels_of_rank":[3000,3000]' \
    '"rank_samples":[1,1],"rank_voxels":[3000,3000]'; do
    grep '"name":"step"' "$work/out" | grep -qF "$part" || {
        echo "two ranks: no $part"; cat "$work/out"; bad=1; }
done
two_ranks twin-a.h5 twin-a.h5
[ $? = 3 ] || { echo "a rank without work: not exit 3"; bad=1; }
grep -q 'rank [01] had no voxel in some of 3 steps' "$work/err" || {
    echo "a rank without work: other words"; cat "$work/err"; bad=1; }
grep -q '"name":"step"' "$work/out" && { echo "a rate of a rank without work"; bad=1; }

# Two ranks on one core have no more than that core.
if taskset -c 0 true 2>/dev/null; then
    measured taskset -c 0 $MPIEXEC -n 2 "$bench" step --quick --json --repeats 3 twin.deck \
        'data.train=["twin-a.h5", "twin-b.h5"]' || { cat "$work/err"; bad=1; }
    grep '"name":"step"' "$work/out" | grep -q '"ceiling":null,"ratio":null' || {
        echo "a ceiling above the machine's"; cat "$work/out"; bad=1; }
fi

all_keys=$keys
keys="name n ms gflops ceiling ratio"
run model --quick --json --ranks 8,64 "$SP_SRCDIR/input/dummy.deck"
check model_balanced model_unbalanced
measured $MPIEXEC -n 2 "$bench" model --quick --ranks 8 --latency-us 5 \
    "$SP_SRCDIR/input/dummy.deck" &&
    grep -q '^latency 5.0 us (given), bandwidth [0-9.]* GB/s (measured on these ranks)' "$work/out" || {
    echo "model: where its network comes from"; cat "$work/out" "$work/err"; bad=1; }
keys=$all_keys
# Columns and classes of the network are those of the data, here 5 classes.
cat >layers.deck <<'END'
data : { train = ["two*.h5"]; };
net : { layers = ( { name = "last"; op = "conv"; out = 5; kernel = 1; } ); };
END
run reduce --quick --json layers.deck
check allreduce
for n in 2 3; do
    measured $MPIEXEC -n $n "$bench" reduce --quick --json --repeats 2 \
        "$SP_SRCDIR/input/dummy.deck" || { cat "$work/err"; bad=1; }
    check allreduce buckets
done
# A step whose loss is not finite updates nothing and is none.
measured $MPIEXEC -n 2 "$bench" step --quick --repeats 3 twin.deck \
    'data.train=["twin-a.h5", "twin-b.h5"]' train.lr=1e30
[ $? = 3 ] && grep -q 'step 1 of 3 updated no weights' "$work/err" || {
    echo "a step without an update is timed"; cat "$work/err"; bad=1; }

# ---- the same on an emulated device, which has no ceilings, so without ratios ----
cuda=$SP_BUILDDIR/tests/device/spbench_hostcuda
if [ -x "$cuda" ]; then
    bench=$cuda
    for precision in fp32 bf16; do
        run ops --quick --json --repeats 2 --device cuda --precision $precision --voxels 150 \
            --channels 12
        check multiply_add stream launch gather_64 gather_512 conv3_forward \
            conv3_grad_weight up2_grad_input batchnorm loss adamw
        [ `grep -c "\"precision\":\"$precision\",\"device\":\"emulated" "$work/out"` = \
            `wc -l <"$work/out"` ] || { echo "rows without $precision and device"; bad=1; }
        grep '"name":"conv3_forward"' "$work/out" | grep '"clock":"device"' |
            grep -q '"floor_ms":[0-9]' || { echo "conv3_forward: clock, floor"; bad=1; }
    done
    run plan --quick --json --repeats 2 --device cuda --voxels 150
    check plan_minkunet18 plan_dummy
    grep '"name":"plan_minkunet18"' "$work/out" |
        grep -q '"operations":[1-9][0-9]*,"waits":[1-9]' || {
        echo "plan: operations, waits"; bad=1; }
    "$SP_BUILDDIR/spvox" scene --out tiny --samples 3 --extent 9 --seed 3 --voxel-size 0.7 \
        >"$work/err" 2>&1 || bad=1
    cat >deck <<'END'
data : { train = ["tiny*.h5"]; voxel_size = 0.7; };
batch : { size = 2; };
net : { family = "dummy"; width = 0.125; };
run : { device = "cuda"; };
END
    run step --quick --json --repeats 2 --precision tf32 deck
    check step step_wait step_forward step_backward step_update loader_plan
    grep '"name":"step"' "$work/out" | grep '"precision":"tf32"' |
        grep -q '"memory_bytes":[1-9]' || { echo "step: precision, memory"; bad=1; }
    run eval --quick --json --repeats 2 --precision bf16 deck 'data.val=["tiny*.h5"]'
    check eval eval_forward eval_count loader_plan
    grep '"name":"eval"' "$work/out" | grep -q '"samples":3,' || { echo "eval: samples"; bad=1; }
    limit=1e9
    layers --quick --repeats 2 --precision bf16 deck
    printf '#!/bin/sh\nexec %s -n 2 %s "$@"\n' "$MPIEXEC" "$cuda" >both
    chmod +x both
    bench=./both
    run reduce --quick --json --repeats 2 --device cuda deck
    check sum_peers sum_nccl sum_host
    [ `grep -c '"name":"sum_[a-z]*","n":\(193\|513\),.*"ms":[0-9.]*[1-9]' "$work/out"` = 6 ] || {
        echo "reduce: not 6 sums"; cat "$work/out"; bad=1; }
    SP_PEER_MEMORY=0 $bench reduce --quick --repeats 2 --device cuda deck >"$work/out" \
        2>"$work/err" || bad=1
    grep -q "no sums through the devices' memory: .*SP_PEER_MEMORY=0" "$work/err" &&
        grep -q '^513 doubles over 2 ranks through NCCL: [0-9.]* us$' "$work/out" || {
        echo "reduce without peers"; cat "$work/err"; bad=1; }
    NCCL_DOUBLE_FAIL=wrong:1:9 $bench reduce --quick --repeats 2 --device cuda deck \
        >"$work/out" 2>"$work/err"
    [ $? = 7 ] && grep -q 'rank 1/2 .*sum of element 0 of 193: .*, expected 3' "$work/err" || {
        echo "reduce: a wrong sum is timed"; cat "$work/err"; bad=1; }
    bench=$cuda
    run step --quick --json --repeats 2 --device cpu deck
    grep '"name":"step"' "$work/out" | grep -q '"clock":"cpu"' || { echo "step: device"; bad=1; }
fi
bench=$SP_BUILDDIR/spbench

# refused STATUS MESSAGE ARGUMENTS...
refused() {
    status=$1
    message=$2
    shift 2
    "$bench" "$@" >"$work/out" 2>"$work/err"
    test $? = "$status" && grep -q -e "$message" "$work/err" || {
        echo "spbench $* is not refused"; bad=1; }
}
refused 2 'expected cuda|cpu' ops --device gpu
refused 2 'expected terrain, surface, random or lidar' ops --shape torus
refused 2 '--out FILE is missing' voxels
refused 2 '--code FILE is missing' roofline one.deck
refused 2 'train.precision must be bf16' roofline --code "$code" one.deck
refused 4 'no-such.txt' roofline --code no-such.txt --precision bf16 one.deck
refused 3 'damaged.txt: line 1 is no row' roofline --code damaged.txt --precision bf16 one.deck
refused 3 'the table has no kernel "conv bf16' roofline --code short.txt --precision bf16 one.deck
refused 3 'no-such.h5' voxels --shard no-such.h5 --out raw
for command in ops plan io; do
    refused 3 'no voxel, so there is nothing' $command --quick --shard zero.h5
done
echo notes >"$work/notes"
refused 2 'notes is there, and is no shard' voxels --voxels 10 --out "$work/notes"
refused 4 'nowhere/raw' voxels --shard one-00000-of-00001.h5 --out nowhere/raw
refused 2 'expected fp32|tf32|bf16' plan --precision fp16
refused 2 'in fp32 and bf16 only' ops --precision tf32
refused 2 'eval: --layers is an option of step only' eval --layers
refused 2 'step: --voxels is an option of ops, plan, io, voxels only' step --voxels=10
refused 2 'spbench io times the CPU' io --device cuda
refused 2 'io takes one number' io --voxels 10,20
refused 2 'voxels takes one number' voxels --voxels 10,20 --out several.h5
[ ! -x "$cuda" ] || bench=$cuda refused 2 'sums of several ranks' reduce --device cuda

# The output may not replace the shard, by whichever name.
cp one-00000-of-00001.h5 two.h5
refused 2 'would replace the shard' voxels --shard 'tw?.h5' --out ./two.h5
cmp one-00000-of-00001.h5 two.h5 || { echo "voxels has replaced its shard"; bad=1; }
# Results that are lost are a failure.
if test -w /dev/full; then
    "$bench" ops --quick --repeats 1 --voxels 100 --channels 1 >/dev/full 2>"$work/err"
    test $? = 4 && grep -q 'cannot write to standard output' "$work/err" || {
        echo "lost rows are no failure"; cat "$work/err"; bad=1; }
    "$bench" --version >/dev/full 2>"$work/err"
    test $? = 4 && grep -q 'cannot write to standard output' "$work/err" || {
        echo "a lost version is no failure"; cat "$work/err"; bad=1; }
fi
# Of several ranks one makes the file.
"$MPIEXEC" -n 3 "$bench" voxels --voxels 10 --out three.h5 >"$work/out" 2>&1 && test -s three.h5 &&
    ! grep . "$work/out" || { echo "voxels on three ranks"; cat "$work/out"; bad=1; }
(ulimit -f 1 && exec "$bench" voxels --shard two.h5 --out raw) 2>"$work/err"
test $? = 4 && grep -q 'raw: cannot be written' "$work/err" || {
    echo "voxels beyond ulimit -f"; cat "$work/err"; bad=1; }
# Where no temporary folder can be made, the folder that was to hold it stays.
mkdir empty
TMPDIR=`printf '%240s' | sed 's| |./|g'`empty # its path is too long with another name
export TMPDIR
refused 4 'cannot make a temporary folder' io --quick
unset TMPDIR
test -d empty || { echo "io has removed a folder of others"; bad=1; }
# A request to stop leaves no file there. Where this script stands still it comes too late.
for try in 1 2 3 4 5; do
    TMPDIR=empty "$bench" io --voxels 1000000 --repeats 101 >"$work/out" 2>&1 &
    while kill -0 $! 2>/dev/null && ! ls empty | grep -q spbench; do sleep 0.1; done
    kill $!
    wait $!
    status=$?
    test $status = 0 || break
done
test $status = 143 && rmdir empty || { echo "io, stopped, leaves a file"; bad=1; }

# A deck behind options, where the program starts itself again.
env -u OMP_WAIT_POLICY "$bench" roofline --json "$SP_SRCDIR/input/dummy.deck" 2>"$work/err"
grep -q -e '--code FILE is missing' "$work/err" || { echo "options before a deck"; cat "$work/err"; bad=1; }
"$bench" --help | grep -q BLAS || { echo "--help does not tell of sgemm"; bad=1; }
"$bench" ops --threads none 2>"$work/err"
test $? = 2 && grep -q 'expected a whole number' "$work/err" || { echo "usage is not refused"; bad=1; }
exit $bad
