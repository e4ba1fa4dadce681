#!/bin/sh
# A run may be asked to stop at any instant, from its first moment on, through the launcher
# or at one of its ranks: the same command again continues it, at the first try, to the
# bits and the metrics of the run that nobody stopped. SP_SIGNALS signals (8 in make check)
# at random instants on 1, 2, 4 and 8 ranks.
. "$SP_SRCDIR/tests/fixtures/program.sh"
signals=${SP_SIGNALS-8}
first=${SP_SEED-1}
"$SHARDS" uneven u.h5 || fail "make_shards"
dummy_deck u.h5 'size = 2;' 'epochs = 3; warmup_steps = 5;' \
    'log_every = 1; checkpoint_every = 5; keep = 2; dir = "r"; threads = 1;'
last=24 # 15 samples in steps of 2: 8 steps an epoch

# now_ms: of a clock that goes on evenly.
now_ms() {
    awk '{ printf "%d", 1000 * $1 }' /proc/uptime
}
# whole RANKS: the run that nobody stops, its length in milliseconds.
whole() {
    begin=$(now_ms)
    run "$1" 0 base.deck run.dir="want$1"
    echo $(($(now_ms) - begin)) >"length$1"
    sums "want$1" $last >"sums$1"
    lines "want$1" >"lines$1"
}
# target RANKS: the process that gets the signal, the launcher or a rank, in $pid and $who.
target() {
    who=$(draw $((i + 3000)) $(($1 + 1)))
    pid=
    test "$who" = "$1" || pid=$(record r "$who")
    pid=${pid%% *}
    # Before the ranks have a heartbeat there is only the launcher.
    test -n "$pid" || { who=launcher pid=$job; }
    case $who$signal in # MPICH's ends of these
    launcherUSR2 | launcherHUP | launcherXCPU) signal=USR1 ;;
    esac
}
# stopped RANKS: one run that gets a signal at some instant; where it ended in $end.
stopped() {
    rm -rf r
    signal=$(nth $(($(draw $((i + 1000)) 6))) TERM USR1 INT USR2 HUP XCPU)
    wait_ms=$(draw $((i + 2000)) $((1 + $(cat "length$1") * 11 / 10)))
    begin "$1" base.deck
    sleep "$(awk -v t="$wait_ms" 'BEGIN { print t / 1000 }')"
    target "$1"
    kill -"$signal" "$pid" 2>/dev/null
    finish
    await "ranks go on after $signal to $who" is_gone
    grep -q '^sptrain: .*SP_E' err && fail "$i: $signal to $who after $wait_ms ms of $1 ranks"
    end=early
    if grep -q '"state":"done"' r/status.json 2>/dev/null; then
        end=done
    elif grep -q '"state":"stopped"' r/status.json 2>/dev/null; then
        end=stopped
        says out 'run the same command again to continue'
    elif grep -q '"event":"step"' r/metrics.jsonl 2>/dev/null; then
        fail "$i: $signal to $who after $wait_ms ms of $1 ranks: status $got, $(cat r/status.json)"
    fi
}

for n in 1 2 4 8; do whole $n; done
i=$first
while test $i -lt $((first + signals)); do
    n=$(nth $((i % 4)) 1 2 4 8)
    stopped $n
    run $n 0 base.deck
    status r done 0
    at="after $signal to $who at $wait_ms ms on $n ranks"
    yields "sums$n" "$i: weights $at" sums r $last
    yields "lines$n" "$i: metrics $at" lines r
    nothing_behind r "checkpoints deck.resolved heartbeat.bin lock metrics.jsonl status.json"
    echo "$n $signal $end" >>ends
    i=$((i + 1))
done
echo "$signals signals, all continued at the first try to the same bits"
echo "ranks, signal, the run was (early: had not begun), how often:"
sort ends | uniq -c | awk '{ printf "%5d %-5s %-8s %d\n", $2, $3, $4, $1 }' | sort -n
