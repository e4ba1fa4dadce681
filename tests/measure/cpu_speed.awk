# cpu_speed.awk -v most=X LINES: the rounds of cpu_speed.sh as a table, and what two ranks
# gain. A line is spbench's of a whole step, with net, file, round, run (one: a rank alone,
# left and right: two programs at once, two: two ranks) and intended_voxels, those of a
# rank's sample. Exit status 1 where the work of a step is not the intended one: every rank
# one such sample in every step, and as many operations as any other rank of this network;
# 8 where two ranks are more than X times as fast as one.
function value(key) {
    if (!match($0, "\"" key "\": *[-+.0-9e]+")) return "none"
    return substr($0, RSTART + length(key) + 3, RLENGTH - length(key) - 3) + 0
}
function text(key) {
    if (!match($0, "\"" key "\": *\"[^\"]*\"")) return ""
    return substr($0, RSTART + length(key) + 4, RLENGTH - length(key) - 5)
}
# is(KEY, X): every number of the list KEY, and at least one, is X
function is(key, x, list, n, i) {
    if (!match($0, "\"" key "\": *\\[[^\\]]*\\]")) return 0
    list = substr($0, RSTART + length(key) + 4, RLENGTH - length(key) - 5)
    n = split(list, numbers, ",")
    for (i = 1; i <= n; i++)
        if (numbers[i] < (1 - 1e-9) * x || numbers[i] > (1 + 1e-9) * x) return 0
    return n
}
function wrong(words) {
    printf "%s %s, round %d, run %s: %s\n", net, text("file"), value("round"), run, words
    bad = 1
}
function median(list, n, numbers, i, j, t) {
    n = split(list, numbers, " ")
    for (i = 2; i <= n; i++)
        for (j = i; j > 1 && numbers[j] < numbers[j - 1]; j--) {
            t = numbers[j]; numbers[j] = numbers[j - 1]; numbers[j - 1] = t
        }
    return (numbers[int((n + 1) / 2)] + numbers[int(n / 2) + 1]) / 2
}
function line(run, samples, voxels, gflop, ms, times) {
    return sprintf("%-22s %5d  %-10s %7d %8d %9.4g %10.6g %9.4g %6s\n", net " " text("file"),
        value("round"), run, samples, voxels, gflop, ms, gflop / ms * 1e3, times)
}

{
    net = text("net"); run = text("run"); key = net " " text("file")
    ranks = run == "two" ? 2 : 1
    each = value("intended_voxels")
    gflop = value("gflop") / ranks
    ms = value("wall_ms")
    if (!(key in flops)) {
        order[++n_keys] = key
        flops[key] = gflop
    }
    if (value("ranks") != ranks || !is("rank_samples", 1) || is("rank_samples", 1) != ranks)
        wrong("not " ranks " ranks of a sample each")
    else if (value("samples") != ranks || value("voxels") != ranks * each)
        wrong(value("samples") " samples, " value("voxels") " voxels a step, not " ranks \
            " and " ranks * each)
    else if (!is("samples_of_rank", 1) || !is("voxels_of_rank", each))
        wrong("a rank had a step of other work than one sample of " each " voxels")
    else if (!is("gflop_of_rank", flops[key]) || !(flops[key] > 0))
        wrong("a rank had a step of other work than " flops[key] " GFLOP")
    else if (!(ms > 0))
        wrong("no time")
}
{ runs[key, value("round")] = runs[key, value("round")] " " run }
bad { next }
run == "one" {
    one = ms
    shown = shown line("1 rank", 1, each, gflop, ms, 1)
}
run == "left" { left = ms }
run == "right" {
    rate = one / left + one / ms
    apart[key] = apart[key] sprintf(" %.4g", rate)
    shown = shown line("2 programs", 2, 2 * each, 2 * gflop, 2 / (1 / left + 1 / ms),
        sprintf("%.3f", rate))
}
run == "two" {
    rate = 2 * one / ms
    both[key] = both[key] sprintf(" %.4g", rate)
    shown = shown line("2 ranks", 2, 2 * each, 2 * gflop, ms, sprintf("%.3f", rate))
    if (rate > most) {
        printf "%s, round %d: two ranks are %.3f times as fast as one: a failed measurement\n",
            key, value("round"), rate
        above = 1
    }
}
END {
    for (i in runs)
        if (runs[i] != " one left right two") {
            split(i, parts, SUBSEP)
            print parts[1] ", round " parts[2] ": not one, left, right and two, but" runs[i]
            bad = 1
        }
    if (!n_keys) print "no rounds"
    if (bad || !n_keys) exit 1
    if (above) exit 8
    printf "%-22s %5s  %-10s %7s %8s %9s %10s %9s %6s\n%s", "ranks, on as many cores", "round",
        "run", "samples", "voxels", "GFLOP", "ms a step", "GFLOP/s", "times", shown
    for (i = 1; i <= n_keys; i++) {
        key = order[i]
        printf "%-58s%s  median %.3f\n", key ", 2 ranks, times the rate of 1, each round",
            both[key], median(both[key])
        printf "%-58s%s  median %.3f\n", "    what two programs apart from each other reach",
            apart[key], median(apart[key])
    }
}
