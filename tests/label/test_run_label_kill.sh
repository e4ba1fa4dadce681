#!/bin/sh
# sptrain label of an area, killed at each point between a scan's blocks and the name of its
# output, on 1 and 2 ranks: the second start gives the bytes of a run that nobody killed, and
# makes only what is missing. Tasks that share an area never write one file: a second start
# of a task that runs is refused, the other task is not disturbed.
. "$SP_SRCDIR/tests/fixtures/program.sh"

mkdir in
awk 'BEGIN {
    for (i = 0; i < 8000; i++) {
        seed = (seed * 1103 + 12347) % 65521; x = 40 * seed / 65521
        seed = (seed * 1103 + 12347) % 65521; y = 40 * seed / 65521
        is_box = (int(x / 3) % 5 < 2) && (int(y / 3) % 5 < 2)
        tile = "in/" (x < 20 ? "a" : "b") (y < 20 ? "1" : "2") ".txt"
        if (!(tile in begun)) print "x y z label" >tile
        begun[tile]
        printf "%.3f %.3f %.3f %d\n", 1000 + x, 500 + y, 4 * is_box, is_box ? 6 : 2 >tile
    }
}'
spvox convert --out t --voxel-size 1 --block 10 --overlap 3 --points --map 2=ground,6=box \
    --features height in/a1.txt
deck 'family = "dummy";' 'train = "t-*.h5"; val = []; voxel_size = 1.0;' \
    'size = 8;' 'steps = 2; warmup_steps = 1;' 'dir = "r"; eval_every = 0; threads = 1;'
run 1 0 base.deck

# label RANKS STATUS DIR WORDS...
label() {
    n=$1 want=$2 to=$3
    shift 3
    run "$n" "$want" label r in/*.txt --out "$to" --buffer 16 run.threads=1 run.watchdog_s=0 "$@"
}
# whole DIR WHAT: all outputs have the bytes of the run that nobody killed.
whole() {
    test "$(ls "$1")" = "$(ls want)" || fail "$2: $1 has $(ls "$1")"
    same_files want "$1" "$2"
    test -z "$(find "$1/.sptrain" -name 'tmp*')" || fail "$2: unfinished files stay"
}
label 1 0 want

# RANKS:RANK:POINT:SCAN:OUTPUTS, the number of outputs with names by then at most.
for at in 1:0:cut:0:0 1:0:written:0:0 1:0:made:0:0 2:1:cut:1:1 2:1:eval:0:1 2:1:written:1:1 \
    2:0:made:2:2 1:0:made:3:3; do
    fault=${at#*:}
    most=${fault##*:}
    rm -rf killed
    SP_TEST_FAULT=kill@${fault%:*} launch "${at%%:*}" label r in/*.txt --out killed --buffer 16 \
        run.threads=1 run.watchdog_s=0 && fail "$at: not killed"
    says err '^fault: kill at '
    # shellcheck disable=SC2012 # names without surprises
    n_done=$(ls killed | wc -l)
    test "$n_done" -le "$most" || fail "$at: $n_done outputs have names"
    label $((3 - ${at%%:*})) 0 killed
    says out "labelled scans=$((4 - n_done)) finished_before=$n_done "
    whole killed "killed at $at"
done

# A task that has written its first output, and hangs before this has its name, keeps its
# lock.
SP_TEST_FAULT=hang@0:made:0 begin 1 label r in/*.txt --out shared --buffer 16 --task 0/2 \
    run.threads=1 run.watchdog_s=0
await "no fault" grep -q '^fault: hang' err
label 1 4 shared --task 0/2
says err 'in use by host .* pid [0-9]'
pid=$(sed -n 's/.* pid \([0-9]*\).*/\1/p' err | head -1)
clean_up() { kill -KILL "$pid"; }
test -z "$(ls shared)" || fail "the second start of a task has written $(ls shared)"
label 1 0 shared --task 1/2
says out 'labelled scans=2 finished_before=0'
test "$(cd shared && echo *)" = "a2.txt b2.txt" || fail "task 1 wrote $(ls shared)"
kill -KILL "$pid"
finish
test $got != 0 || fail "status 0 after kill -9"
label 1 0 shared --task 0/2
says out 'labelled scans=2 finished_before=0'
whole shared "two tasks"
exit 0
