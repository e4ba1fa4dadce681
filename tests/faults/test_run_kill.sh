#!/bin/sh
# A run may be killed at any instant and any number of times: continued it ends with the
# bits and the metrics of the run that nobody killed, each start names who was lost in the
# one before it, and nothing stays behind. SP_KILLS kills -9 (20 in make check) of random
# ranks, in each named phase and at random moments: three fifths of them on 2, 3 and 4
# ranks, the others each followed by a start on another number of ranks.
. "$SP_SRCDIR/tests/fixtures/program.sh"
kills=${SP_KILLS-20}
each=$(((kills + 4) / 5))
"$SHARDS" uneven u.h5 || fail "make_shards"
# 15 samples in steps of 2: 8 steps an epoch, some of which each kill costs again
epochs=$((each + 5))
last=$((8 * epochs))
dummy_deck u.h5 'size = 2;' "epochs = $epochs; warmup_steps = 5;" \
    'log_every = 1; checkpoint_every = 3; keep = 2; dir = "r";'
smooth_deck # no ReLU whose sign a last digit can turn
set -- read reduce saving plan verified forward load renamed backward pread linked update \
    save eval
points=$*
n_points=$#

newest() {
    ls r/checkpoints 2>/dev/null | sed -n 's/^step-0*\([1-9][0-9]*\)\.h5$/\1/p' | sort -n | tail -1
}

# named: checks that the last start names the victim of the kill before it
named() {
    test -z "$victim" && return
    says err "the run before this one was lost with $victim, which died"
}
# killed RANKS RANK POINT: the launcher's last run was; who is to be named next
killed() {
    # which it is depends on who is faster, the other ranks (6) or the launcher (9, 15)
    test $got = 0 && fail "status 0: $3 of rank $2/$1"
    named
    # shellcheck disable=SC2046
    set -- "$1" "$2" "$3" $(record r "$2")
    case " read forward backward reduce update save eval load " in
    *" $3 "*) test "$3" = "$5" || fail "killed in $3, heartbeat.bin says $5" ;;
    esac
    victim="rank $2/$1 host $(hostname) pid $4, phase $5, epoch $6, step $7"
    case $5 in
    start) victim= ;; # too early to be seen by others for sure
    *) status r failed 6 ;;
    esac
    n_killed=$((n_killed + 1))
    echo "$n_killed $1 $2 $3 $5 $7 $got" >>kills
}
# die DECK RANKS I: at a named point a few steps past the newest checkpoint
die() {
    at=$(newest)
    who=$(draw $(($3 + 1000)) "$2")
    point=$(nth $((n_points_done % n_points)) $points)
    n_points_done=$((n_points_done + 1))
    step=$((at + 1 + $(draw "$3" 4)))
    case $point in
    sav?* | verified | renamed | linked) who=0 ;;
    load)
        step=0
        test -n "$at" || point=read
        ;;
    esac
    SP_TEST_FAULT=kill@$who:$point:$step launch "$2" "$1"
    got=$?
    killed "$2" "$who" $point
}
# is_anew: rank $who has another process than $before had, which is in $now
is_anew() {
    now=$(record r "$who")
    test -n "$now" && test "${now%% *}" != "${before%% *}"
}
# die_later DECK RANKS I: after a moment, by the id of one of its processes; before the end of
# the training rank 0 waits for it.
die_later() {
    who=$(draw "$3" "$2")
    before=$(record r "$who")
    at=$(($(newest) + 2 + $(draw "$3" 20)))
    SP_TEST_FAULT=hang@0:forward:$((at < last ? at : last)) begin "$2" "$1"
    sleep "0.$(draw "$3" 90)"
    await "rank $who does not start" is_anew
    kill -9 "${now%% *}" || fail "rank $who is not there"
    finish
    killed "$2" "$who" later
}
# matrix DECK KILLS RANKS... : killed so often and continued on these ranks in turn
matrix() {
    rm -rf r
    deck=$1 n=$2 i=0
    shift 2
    victim=
    while test $i -lt "$n"; do
        ranks=$(nth $((i % $#)) "$@")
        if test $((i % 4)) = 3; then
            die_later "$deck" "$ranks" $n_killed
        else
            die "$deck" "$ranks" $n_killed
        fi
        i=$((i + 1))
    done
    run "$(nth $((i % $#)) "$@")" 0 "$deck"
    named
    status r done 0
    nothing_behind r "checkpoints deck.resolved heartbeat.bin lock metrics.jsonl status.json"
}
n_killed=0
n_points_done=0

# A run that is continued on as many ranks as before has the same bits.
for n in 2 3 4; do
    rm -rf want
    run $n 0 base.deck run.dir=want
    sums want $last >want.sums
    lines want >want.lines
    matrix base.deck $each $n
    yields want.sums "weights after $each kills on $n ranks" sums r $last
    yields want.lines "metrics.jsonl after $each kills on $n ranks" lines r
done

# A run that is continued on another number each time has the same samples, and the loss but
# for rounding.
run 1 0 smooth.deck run.dir=smooth
matrix smooth.deck $each 3 1 4 2
near r smooth $last 1e-5 1e-5
tail -n 1 differences

# With sums that do not depend on the number it has the same bits.
sed 's/epochs = /deterministic = "world"; epochs = /' base.deck >world.deck
run 1 0 world.deck run.dir=world
sums world $last >want.sums
matrix world.deck $each 2 3 1 4
yields want.sums "weights after $each kills on changing ranks" sums r $last
echo "$n_killed kills, $n_killed continued and named (number, ranks, rank, point, phase, step, status):"
column -c 150 kills 2>/dev/null || cat kills
