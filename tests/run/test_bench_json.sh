#!/bin/sh
# spbench gives one object a line with the fields that programs read, and ratios that a
# machine can have.
. "$SP_SRCDIR/tests/fixtures/program.sh"
bench=$SP_BUILDDIR/spbench

value_of='function value(key) {
    if (!match($0, "\"" key "\":[-+.0-9e]+")) return "none"
    return substr($0, RSTART + length(key) + 3, RLENGTH - length(key) - 3) + 0
}
function is_near(a, b, t) { return a > (1 - t) * b && a < (1 + t) * b }'

# holds WHAT PROGRAM [NAME=VALUE...]: an awk program ends with 0 for the lines of out.
holds() {
    what=$1 program=$2
    shift 2
    awk "$value_of
$program" "$@" out >&2 || fail "$what"
}

# check NAME...: the lines of out; each name must be among them
keys="name n ms gflops ceiling ratio floor_ms precision device"
check() {
    for key in $keys; do
        ! grep -v "\"$key\":" out >&2 || fail "a line without $key (above)"
    done
    holds "lines of $* (above)" '
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
    END { exit bad }' limit="$limit"
    for name; do
        says out "\"name\":\"$name\""
    done
}

# row NAME TEXT...: the lines of NAME, in the file found, have each text (a basic regular
# expression).
row() {
    name=$1
    shift
    grep "\"name\":\"$name\"" out >found
    for text; do
        grep -q "$text" found || fail "$name: no $text"
    done
}

# measured COMMAND...: what other programs interrupt is a failed measurement (status 8), and
# is repeated as its message says.
measured() {
    for try in 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 19 20; do
        "$@" >out 2>err </dev/null
        status=$?
        test $status = 8 || return $status
    done
    return 8
}
# bench ARGUMENTS...; bench_on RANKS ARGUMENTS...: ends with 0.
bench() {
    measured "$bench" "$@" || fail "status $status: spbench $*"
}
bench_on() {
    n=$1
    shift
    measured "$MPIEXEC" -n "$n" "$bench" "$@" || fail "status $status: $n ranks: spbench $*"
}
# refuses STATUS TEXT COMMAND...: ends with this status, and err says TEXT.
refuses() {
    want=$1 text=$2
    shift 2
    measured "$@"
    test $status = "$want" || fail "status $status, expected $want: $*"
    says err "$text"
}

limit=1.05 # above it no row is printed
bench ops --quick --json --voxels 2000 --channels 16
check multiply_add stream conv3_forward conv3_grad_input conv3_grad_weight down2_forward \
    conv3_rebuilt down2_rebuilt up2_forward conv1_forward batchnorm batchnorm_grad relu add loss sgd adamw
row conv3_forward '"n":2000,"pairs":[0-9]*,"c_in":16,"c_out":16,'
# The rates of work that is not known.
row add '"gflops":null,"gbytes_s":[0-9]'
row conv3_rebuilt '"gbytes_s":null'

bench plan --quick --json --voxels 2000
check plan_minkunet18 plan_minkunet18_stem3 plan_minkunet34 plan_dummy
says_not err warning # of a key that nobody gave

# ---- shapes: pairs of a voxel; each a function of its number; files of them ----
while read -r shape n least most; do
    bench ops --quick --json --repeats 1 --voxels "$n" --channels 1 --shape "$shape"
    row conv3_forward "\"n\":$n,"
    holds "$shape: not $n voxels of $least to $most pairs" '
    /"name":"conv3_forward"/ { t = value("pairs") / value("n") }
    END { exit !(t > least && t < most) }' least="$least" most="$most"
    bench voxels --shape "$shape" --voxels 3000 --samples 3 --out "$shape.h5"
    spvox info "$shape.h5"
    says out 'samples 3  voxels 9000'
done <<'END'
terrain 50000 8 10
surface 50000 8.2 9.2
random 50000 1.0 1.03
lidar 94444 2.8 3.3
END
bench voxels --shard lidar.h5 --out lidar.raw
head -n 1 lidar.raw >header
grep -qx 'sptrain-raw 1 samples 3 voxels 9000 features 4 classes 20' header || fail "raw: header"
# offsets, coordinates, features, labels
size=$(($(wc -c <header) + 8 * 4 + 9000 * (12 + 16 + 4)))
test "$(wc -c <lidar.raw)" = $size || fail "raw: not $size bytes"
bench io --quick --json --voxels 2000
check read read_verified
# A file of one voxel is read no faster than plainly. Arrays in chunks count too (1,278 voxels
# of 21 bytes), and have no plain reading to compare with.
bench voxels --voxels 1 --out small.h5
bench io --quick --json --shard small.h5
check read read_verified
"$SHARDS" bare-chunked chunked.h5 && "$SHARDS" box zero.h5 2 0 4 2 3 0 || fail "make_shards"
bench io --quick --json --shard chunked.h5
check read read_verified
holds "io: chunks" '/"name":"read/ {
    bytes = value("gbytes_s") * value("ms") * 1e6
    n += /"ceiling":null,"ratio":null/ && bytes > 26837 && bytes < 26839
} END { exit n != 2 }'

bench step --quick --json "$SP_SRCDIR/input/dummy.deck"
check step step_forward step_backward step_update loader_plan

# Every convolution of the network in its three directions but the first, whose input has
# no gradient.
layers() {
    bench step --layers --json "$@"
    check step layers norm_apply norm_grad_apply loss sgd
    for row in 'conv_forward","layer":"conv2","level":1,"kernel":3,"stride":2,' \
        'conv_grad_weight","layer":"conv1"' 'conv_grad_input","layer":"convtr3","level":0' \
        'conv_grad_input","layer":"conv4"' 'norm_apply","layer":"bn2"'; do
        says out "\"name\":\"$row"
    done
    test "$(grep -c '"name":"conv_[fg].*"pairs":[1-9].*"floor_ms":[0-9]' out)" = 11 ||
        fail "not 11 rows of convolutions"
    holds "shares do not add up" '
    /"share":/ && !/"name":"(layers|rest)"/ { shares += value("share") }
    /"name":"layers"/ { whole = value("share") }
    /"name":"rest"/ { rest = value("share") }
    END { exit !(whole > 0 && is_near(shares, whole, 1e-9) && is_near(whole + rest, 1, 1e-9)) }'
}
spvox scene --out one --samples 1 --extent 20 --seed 3
cat >one.deck <<'END'
data : { train = ["one*.h5"]; voxel_size = 0.5; };
augment : { flip = false; rotate_z = false; scale = [1.0, 1.0]; drop = 0.0; jitter = 0.0; };
batch : { size = 1; };
net : { family = "dummy"; };
END
layers --quick one.deck
check host_clear host_read host_forward host_loss host_backward host_recycle host_reduce \
    host_update
# Their work is the step's. Of times on a machine with other programs no such thing is known.
holds "the layers are not the step" '
/"name":"conv_[fg]/ { flops += value("gflops") * value("ms") }
/"name":"step"/ { step = value("gflops") * value("ms") }
END { exit !(step > 0 && is_near(flops, step, 1e-3)) }'

# ---- an evaluation: the products of the step's forward pass, and no others ----
forward=$(awk "$value_of"'
/"name":"conv_forward/ { flops += value("gflops") * value("ms") }
END { print flops / 1000 }' out)
# Weights that are frozen have no gradient, nor has what stands before them.
bench step --quick --json --repeats 2 one.deck \
    'train.freeze=["conv1", "bn", "conv2", "convtr3"]'
holds "step: not the work of a forward pass of $forward GFLOP and the last weights" '
/"name":"step"/ { ratio = value("gflop") / forward }
END { exit !(ratio > 1.001 && ratio < 1.2) }' forward="$forward"
spvox scene --out two --samples 2 --extent 20 --seed 3
bench eval --quick --json one.deck 'data.val=["one*.h5"]' 'data.train=[]'
check eval eval_forward eval_count loader_plan loader_read
holds "eval: not the work of a forward pass of $forward GFLOP" '
/"name":"eval"/ {
    whole = value("ms")
    is_counted = value("samples") == 1 && value("voxels") == value("n") && value("n") > 0 &&
        is_near(value("gflop"), forward, 1e-3)
}
/"name":"eval_forward"/ { part = value("ms") }
END { exit !(is_counted && part > 0 && whole > 0) }' forward="$forward"
bench_on 2 eval --quick --json one.deck 'data.val=["two*.h5"]'
row eval '"ranks":2,"samples":2,.*"rank_samples":\[1,1\]'
refuses 3 'rank 1 had no voxel in some of 5 passes .* with batch.eval_size 2' \
    "$MPIEXEC" -n 2 "$bench" eval --quick one.deck 'data.val=["one*.h5"]'
refuses 2 '' "$bench" eval --quick one.deck 'data.val=[]'

# ---- what a GPU would do in a step, counted: as many convolutions, nothing computed ----
cp "$SP_SRCDIR/tests/results/code-sm_90.txt" code.txt
bench roofline --json --precision bf16 --code code.txt one.deck
test "$(grep -c '"name":"conv_[fg].*"kernel":"[cw].*"weight_bytes":[1-9].*"predicted_us":[1-9]' \
    out)" = 11 || fail "roofline: not 11 convolutions"
# all rows of the totals add up to the step
roofline_sums() {
    holds "roofline, $1: sums" '
/"name":"step, predicted/ { step = value("predicted_us"); next }
/"name":"3\^3 layers/ { cubes = value("gathered_bytes"); next }
/"name":"evaluation/ { evaluation = value("predicted_us"); next }
/"name":"total/ { total += value("predicted_us"); next }
/"name":"case"/ {
    n_cases++
    if (/"H100, resources overlap perfectly"/) model = value("predicted_ms")
    if (/"H100, honest"/) honest = value("predicted_ms")
    if (/"weight gradients 256/) after = value("predicted_ms"); next }
{ rows += value("predicted_us") }
END { exit !(n_cases == 15 && is_near(1e3 * model, step, 1e-9) && honest > model &&
    (is_wide ? after < honest : after <= honest) && step > 0 && cubes > 0 && evaluation > 0 &&
    2 * evaluation < step && is_near(total, step, 1e-9) && is_near(rows, step, 1e-9)) }' \
        is_wide="$2"
}
roofline_sums narrow 0 # the changes on the list are for wide layers
sed '/^net/d' one.deck >wide.deck
cat >>wide.deck <<'END'
net : { layers = ( { name = "a"; op = "conv"; out = 256; kernel = 3; }, { name = "n"; op = "batchnorm"; },
  { name = "r"; op = "relu"; }, { name = "b"; op = "conv"; out = 256; kernel = 3; },
  { name = "last"; op = "conv"; out = 5; kernel = 1; } ); };
END
bench roofline --json --precision bf16 --code code.txt wide.deck
row conv_forward '"layer":"b","kernel":"wgmma bf16 128 four whole"'
roofline_sums wide 1
bench roofline --wgmma --precision bf16 --code code.txt one.deck
says out '^step, predicted, no device'
says out '^H200, honest '
says out '^expected of changes, H100, honest'
echo "conv bf16 32 4x1 whole 1 2" >damaged.txt
head -n 3 code.txt >short.txt

# ---- ceilings: an interruption fixes none, and no rate above one is a row ----
# Wall time, which tells interruptions. The work of the ceiling's timing is more than what
# can be interrupted unnoticed: 0.05 MFLOP.
for at in 0 3 9; do
    SP_TEST_FAULT=pause@0:peak:$at bench ops --quick --json --repeats 1 --threads 2 \
        --voxels 300 --channels 8
    says err '^fault: pause'
    check multiply_add stream conv3_forward
    test "$(grep '"name":"\(multiply_add\|stream\)"' out | grep -c '"cpu_ms":null')" = 2 ||
        fail "CPU time that was not measured, paused at timing $at"
    holds "paused at timing $at: a ceiling of hardly any work" '
    /"name":"multiply_add"/ { gflop = value("gflops") * value("ms") / 1e3 }
    END { exit !(gflop > 5e-5) }'
done
for form in --json ""; do
    # shellcheck disable=SC2086
    SP_TEST_FAULT=busy@0:peak:0 alone 8 "$bench" ops --quick $form --repeats 1 \
        --voxels 3000 --channels 32
    says err 'error: conv3_forward, n=3000, c=32,32: .* times the ceiling of .*: a failed measurement'
    says out multiply_add
    says_not out conv3_forward
done

# ---- steps of two ranks count the work of both; a path that is given twice counts once ----
bench voxels --shape lidar --voxels 3000 --out twin-a.h5
cp twin-a.h5 twin-b.h5
sed 's/^data.*/data : { train = "twin-[ab].h5"; voxel_size = 0.05; };/; s/size = 1/size = 2/' \
    one.deck >twin.deck
bench_on 2 step --quick --json --repeats 3 twin.deck
check step
row step '"name":"step","n":6000,' '"clock":"wall"' \
    '"ranks":2,"samples":2,"voxels":6000,"gflop":0' \
    '"samples_of_rank":\[1,1\],"voxels_of_rank":\[3000,3000\]' \
    '"rank_samples":\[1,1\],"rank_voxels":\[3000,3000\]'
refuses 3 'rank [01] had no voxel in some of 3 steps' "$MPIEXEC" -n 2 "$bench" step --quick \
    --json --repeats 3 twin.deck 'data.train=["twin-a.h5", "twin-a.h5"]'
says_not out '"name":"step"'

# Two ranks on one core have no more than that core.
if taskset -c 0 true 2>/dev/null; then
    measured taskset -c 0 "$MPIEXEC" -n 2 "$bench" step --quick --json --repeats 3 twin.deck ||
        fail "status $status: two ranks on one core"
    row step '"ceiling":null,"ratio":null'
fi

# Columns and classes of the network are those of the data, here 5 classes.
cat >layers.deck <<'END'
data : { train = ["two*.h5"]; };
net : { layers = ( { name = "last"; op = "conv"; out = 5; kernel = 1; } ); };
END
bench reduce --quick --json layers.deck
check allreduce
for n in 2 3; do
    bench_on $n reduce --quick --json --repeats 2 "$SP_SRCDIR/input/dummy.deck"
    check allreduce buckets
done
# A step whose loss is not finite updates nothing and is none.
refuses 3 'step 1 of 3 updated no weights' "$MPIEXEC" -n 2 "$bench" step --quick --repeats 3 \
    twin.deck train.lr=1e30

# ---- the same on an emulated device, which has no ceilings, so without ratios ----
cuda=$SP_BUILDDIR/tests/device/spbench_hostcuda
if test -x "$cuda"; then
    bench=$cuda
    for precision in fp32 bf16; do
        bench ops --quick --json --repeats 2 --device cuda --precision $precision --voxels 150 \
            --channels 12
        check multiply_add stream launch gather_64 gather_512 conv3_forward \
            conv3_grad_weight up2_grad_input batchnorm loss adamw
        ! grep -v "\"precision\":\"$precision\",\"device\":\"emulated" out >&2 ||
            fail "rows without $precision and device"
        row conv3_forward '"clock":"device"' '"floor_ms":[0-9]'
    done
    bench plan --quick --json --repeats 2 --device cuda --voxels 150
    check plan_minkunet18 plan_dummy
    row plan_minkunet18 '"operations":[1-9][0-9]*,"waits":[1-9]'
    spvox scene --out tiny --samples 3 --extent 9 --seed 3 --voxel-size 0.7
    cat >deck <<'END'
data : { train = ["tiny*.h5"]; voxel_size = 0.7; };
batch : { size = 2; };
net : { family = "dummy"; width = 0.125; };
run : { device = "cuda"; };
END
    bench step --quick --json --repeats 2 --precision tf32 deck
    check step step_wait step_forward step_backward step_update loader_plan
    row step '"precision":"tf32"' '"memory_bytes":[1-9]'
    # No layer is wide enough for wgmma: without its trial.
    bench eval --quick --json --repeats 2 --precision bf16 deck 'data.val=["tiny*.h5"]' \
        run.wgmma=false
    check eval eval_forward eval_count loader_plan
    row eval '"samples":3,'
    limit=1e9
    layers --quick --repeats 2 --precision bf16 deck run.wgmma=false
    printf '#!/bin/sh\nexec "%s" -n 2 "%s" "$@"\n' "$MPIEXEC" "$cuda" >both
    chmod +x both
    bench=./both
    bench reduce --quick --json --repeats 2 --device cuda deck
    check sum_peers sum_nccl sum_host
    test "$(grep -c '"name":"sum_[a-z]*","n":\(193\|513\),.*"ms":[0-9.]*[1-9]' out)" = 6 ||
        fail "reduce: not 6 sums"
    SP_PEER_MEMORY=0 alone 0 $bench reduce --quick --repeats 2 --device cuda deck
    says err "no sums through the devices' memory: .*SP_PEER_MEMORY=0"
    says out '^513 doubles over 2 ranks through NCCL: [0-9.]* us$'
    NCCL_DOUBLE_FAIL=wrong:1:9 refuses 7 'rank 1/2 .*sum of element 0 of 193: .*, expected 3' \
        $bench reduce --quick --repeats 2 --device cuda deck
    bench=$cuda
    bench step --quick --json --repeats 2 --device cpu deck
    row step '"clock":"cpu"'
    refuses 2 'sums of several ranks' "$bench" reduce --device cuda deck
fi
bench=$SP_BUILDDIR/spbench

for command in ops plan io; do
    refuses 3 'no voxel, so there is nothing' "$bench" $command --quick --shard zero.h5
done
echo notes >notes
while IFS=';' read -r want text arguments; do
    # shellcheck disable=SC2086
    refuses "$want" "$text" "$bench" $arguments
done <<'END'
2;expected cuda|cpu;ops --device gpu
2;expected terrain, surface, random or lidar;ops --quick --shape torus
2;--out FILE is missing;voxels
2;--code FILE is missing;roofline one.deck
2;train.precision must be bf16;roofline --code code.txt one.deck
4;no-such.txt;roofline --code no-such.txt --precision bf16 one.deck
3;damaged.txt: line 1 is no row;roofline --code damaged.txt --precision bf16 one.deck
3;the table has no kernel "conv bf16;roofline --code short.txt --precision bf16 one.deck
3;no-such.h5;voxels --shard no-such.h5 --out raw
2;notes exists and is no shard;voxels --voxels 10 --out notes
4;nowhere/raw;voxels --shard one-00000-of-00001.h5 --out nowhere/raw
2;expected fp32|tf32|bf16;plan --precision fp16
2;in fp32 and bf16 only;ops --precision tf32
2;eval: --layers is an option of step only;eval --layers
2;step: --voxels is an option of ops, plan, io, voxels only;step --voxels=10
2;spbench io times the CPU;io --device cuda
2;io takes one number;io --voxels 10,20
2;voxels takes one number;voxels --voxels 10,20 --out several.h5
2;expected a whole number;ops --threads none
END

# The output may not replace the shard, by whichever name.
cp one-00000-of-00001.h5 two.h5
refuses 2 'would replace the shard' "$bench" voxels --shard 'tw?.h5' --out ./two.h5
same one-00000-of-00001.h5 two.h5 "voxels has replaced its shard"
# Results that are lost are a failure.
if test -w /dev/full; then
    for command in 'ops --quick --repeats 1 --voxels 100 --channels 1' --version; do
        # shellcheck disable=SC2086
        "$bench" $command >/dev/full 2>err
        test $? = 4 || fail "what is lost of $command is no failure"
        says err 'cannot write to standard output'
    done
fi
# Of several ranks one makes the file.
"$MPIEXEC" -n 3 "$bench" voxels --voxels 10 --out three.h5 >out 2>&1 && test -s three.h5 &&
    ! grep . out || fail "voxels on three ranks"
(ulimit -f 1 && exec "$bench" voxels --shard two.h5 --out raw) 2>err
test $? = 4 || fail "voxels beyond ulimit -f"
says err 'raw: cannot be written'
# Where no temporary folder can be made, the folder that was to hold it stays.
mkdir empty
TMPDIR=$(printf '%240s' | sed 's| |./|g')empty # its path is too long with another name
export TMPDIR
refuses 4 'cannot make a temporary folder' "$bench" io --quick
unset TMPDIR
test -d empty || fail "io has removed a folder of others"
# A request to stop leaves no file there. Where this script stands still it comes too late.
for try in 1 2 3 4 5; do
    TMPDIR=empty "$bench" io --voxels 1000000 --repeats 101 >out 2>&1 &
    while kill -0 $! 2>/dev/null && ! ls empty | grep -q spbench; do sleep 0.1; done
    kill $!
    wait $!
    status=$?
    test $status = 0 || break
done
test $status = 143 && rmdir empty || fail "io, stopped, leaves a file"

# A deck behind options, where the program starts itself again.
env -u OMP_WAIT_POLICY "$bench" roofline --json "$SP_SRCDIR/input/dummy.deck" 2>err
says err '--code FILE is missing'
"$bench" --help | grep -q BLAS || fail "--help does not tell of sgemm"
