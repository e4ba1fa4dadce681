# Of lines "ROUND base|new CASE {JSON}": ratios of processor time and the verdict on them.
# check_speed.sh tells what is printed. rounds, limit: as there.
function number(key,    at) {
    if (!match($0, "\"" key "\":[-+.0-9e]+"))
        return ""
    return substr($0, RSTART + length(key) + 3, RLENGTH - length(key) - 3)
}
{
    work = number("samples") " " number("voxels") " " number("gflop")
    if (number("voxels") + 0 <= 0 || number("gflop") + 0 <= 0 || number("cpu_ms") + 0 <= 0)
        fault("no work is counted: " $0)
    if (!($3 in done))
        order[++n_cases] = $3
    else if (done[$3] != work)
        fault($3 ": other work: " work ", expected " done[$3])
    done[$3] = work
    ms[$3, $1, $2] = number("cpu_ms")
}
function fault(text) {
    print "FAILED  " text
    bad = 1
}
# The number of smallest ratios below the interval: the greatest k with P(X < k) <= 0.025 for
# X of Binomial(n, 1/2), so that [r(k), r(n + 1 - k)] has 95 %.
function below(n,    k, p, sum) {
    p = sum = 0.5 ^ n
    for (k = 0; sum <= 0.025; k++) {
        p *= (n - k) / (k + 1)
        sum += p
    }
    return k
}
END {
    k = below(rounds)
    if (!bad && k == 0)
        fault("6 rounds at least for an interval of 95 %")
    if (!bad && n_cases == 0)
        fault("nothing was measured")
    for (c = 1; !bad && c <= n_cases; c++) {
        for (i = 1; i <= rounds; i++) {
            at = ms[order[c], i, "base"]
            if (!at || !ms[order[c], i, "new"]) {
                fault(order[c] ": round " i " is not whole")
                break
            }
            x = ms[order[c], i, "new"] / at
            for (j = i; j > 1 && ratio[j - 1] > x; j--)
                ratio[j] = ratio[j - 1]
            ratio[j] = x
        }
        if (bad)
            break
        low = ratio[k]
        high = ratio[rounds + 1 - k]
        median = (ratio[int((rounds + 1) / 2)] + ratio[int(rounds / 2) + 1]) / 2
        verdict = "unclear"
        if (low >= 1 - limit && high <= 1 + limit)
            verdict = "same"
        if (low > 1 || high < 1)
            verdict = low > 1 ? "slower" : "faster"
        printf "%-28s %.3f  [%.3f, %.3f]  %s\n", order[c], median, low, high, verdict
        is_slower = is_slower || low > 1 + limit
    }
    exit bad || is_slower
}
