#!/bin/sh
# A run may be killed at any instant, as often as one likes: continued it ends with the
# bits and the metrics of the run that nobody killed. SP_KILLS kills (12 in make check, 100
# in make check-long) in named phases of random ranks and at random moments; on other
# numbers of ranks too, with sums that do not depend on them.
. "$SP_SRCDIR/tests/story.sh"
kills=${SP_KILLS-12}
"$SHARDS" uneven u.h5 || fail "make_shards"
cat >base.deck <<'DECK'
data : { train = "u.h5"; val = "u.h5"; };
net : { family = "dummy"; };
batch : { size = 2; };
train : { epochs = 5; warmup_steps = 5; };
run : { log_every = 1; checkpoint_every = 3; keep = 2; dir = "r"; };
DECK
last=40 # 15 samples in steps of 2: 8 steps an epoch

lines() {
    sed -n '/"event":"step"/s/"step_s".*//p; /"event":"eval"/p' "$1/metrics.jsonl"
}
# draw I N: a number below N, the same for the same I
draw() {
    awk -v i="$1" -v n="$2" 'BEGIN { srand(i); rand(); print int(rand() * n) }'
}
# nth I WORDS...
nth() {
    shift "$(($1 + 1))"
    echo "$1"
}
# die RANKS FAULT ARGUMENTS...: killed, or done where the fault's step is past the end.
die() {
    fault=$2
    n=$1
    shift 2
    SP_TEST_FAULT=$fault launch "$n" base.deck "$@"
    got=$?
    # 9 is the launcher's word; 6 the other ranks', where they are faster
    case $got in 0 | 6 | 9) ;; *) fail "status $got after $fault on $n ranks" ;; esac
}
# die_later RANKS I: killed after a moment, by the id of one of its processes.
die_later() {
    timeout -k 5 60 "$MPIEXEC" -n "$1" "$SPTRAIN" base.deck >out 2>err </dev/null &
    job=$!
    sleep "0.$(draw "$2" 7)"
    "$SPTRAIN" status r 2>/dev/null >who
    pid=$(awk -v r="$(draw "$2" "$1")" '$1 == r && $3 ~ /^[0-9]+$/ && !/gone/ { print $3 }' who)
    test -n "$pid" && kill -9 "$pid" 2>/dev/null
    wait $job
    job=
}

# matrix RANKS... : the run of `want`, killed and continued on these ranks in turn
matrix() {
    rm -rf r
    i=0
    while test $i -lt "$kills"; do
        ranks=$(nth $((i % $#)) "$@")
        if test $((i % 4)) = 3; then
            die_later "$ranks" $i
        else
            point=$(nth "$(draw $i 11)" read forward backward reduce update save eval \
                saving verified renamed linked)
            who=$(draw $((i + 1000)) "$ranks")
            case $point in sav?* | verified | renamed | linked) who=0 ;; esac
            die "$ranks" "kill@$who:$point:$(((i * (last - 4)) / kills + 1))"
        fi
        i=$((i + 1))
    done
    run "$1" 0 base.deck
    status r done 0
    sums r $last >b
    same want.sums b "weights after $kills kills"
    ls r/checkpoints | grep tmp && fail "an unfinished file stays"
    return 0
}

run 2 0 base.deck run.dir=want
sums want $last >want.sums
lines want >want.lines
matrix 2
lines r >b
same want.lines b "metrics.jsonl after $kills kills"

# The same bits on any number of ranks: killed on one number, continued on another.
sed -i 's/epochs = 5;/epochs = 5; deterministic = "world";/' base.deck
rm -rf want
run 1 0 base.deck run.dir=want
sums want $last >want.sums
matrix 2 3 1 4
