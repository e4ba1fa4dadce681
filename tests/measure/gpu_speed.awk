# Tables of what gpu_speed.sh measured, from its JSON lines. worst: a file to sort in.
function text(key) {
    if (!match($0, "\"" key "\": *\"[^\"]*\"")) return ""
    split(substr($0, RSTART, RLENGTH), part, "\"")
    return part[4]
}
function number(key) {
    if (!match($0, "\"" key "\": *[-+.0-9e]+")) return 0
    split(substr($0, RSTART, RLENGTH), part, ":")
    return part[2] + 0
}
function known(key, order, n) {
    if (key in seen) return n
    seen[key] = 1
    order[n + 1] = key
    return n + 1
}
# A peer has fp16 where sptrain has bf16. Single operations are measured with and without
# wgmma; a step in bf16 uses it where the device has it.
function precision() {
    if (/"wgmma":true/ && text("net") == "") return "wgmma"
    return text("run") == "peer" && text("precision") == "fp16" ? "bf16" : text("precision")
}
function shown(format, value) {
    return sprintf(format, value) == sprintf(format, 0) ? "-" : sprintf(format, value)
}
function percent(part, whole) {
    return part > 0 && whole > 0 ? sprintf("%.1f", 100 * part / whole) : "-"
}
function times(theirs, ours) {
    return theirs > 0 && ours > 0 ? sprintf("%.2f", theirs / ours) : "-"
}

BEGIN {
    n_kinds = split("conv_forward conv_grad_input conv_grad_weight conv_pack norm other", kinds, " ")
}
{ name = text("name"); voxels = text("voxels"); p = precision(); ms = number("ms") }

# ---- the machine ----
name == "launch" { launch = 1e3 * ms }
name == "multiply_add" {
    products[p] = number("gflops") / 1e3
    gathers = "" # of each run's own ceilings the last are shown
}
name == "stream" { stream = number("ceiling") / 1e3 }
name ~ /^gather_/ {
    gathers = gathers sprintf("  %s B %.2f", substr(name, 8), number("gbytes_s") / 1e3)
}

# ---- steps ----
text("net") != "" && !(text("layer") != "" && name != "layers") {
    key = sprintf("%-13s %-8s %5d  %-5s", text("net"), voxels, number("batch"), p)
    n_steps = known(key, step_order, n_steps)
}
text("run") == "peer" && name == "step" {
    peer[key] = ms
    peer_memory[key] = number("memory_bytes") / 1048576
    next
}
name == "step" {
    step[key] = ms
    spread[key] = 100 * number("spread")
    memory[key] = number("memory_bytes") / 1048576
}
text("run") == "train" && number("ranks") == 1 {
    train[key] = 1e3 * number("step_s")
    wait[key] = 1e3 * number("data_wait_s")
}
text("run") == "train" && number("ranks") > 1 {
    ranks = number("ranks")
    all[key] = 1e3 * number("step_s")
    comm[key] = 1e3 * number("comm_exposed_s")
}

# ---- layers ----
name == "layers" { # behind its operations
    idle[key] = 100 * (1 - number("share"))
    done[key] = 1
}
name == "rest" { next }
text("layer") != "" && name != "layers" {
    key = sprintf("%-13s %-8s %5d  %-5s", text("net"), voxels, number("batch"), p)
    if (key in done) { # a later run of the same: it counts
        floor[key] = 0
        for (i = 1; i <= n_kinds; i++) kind_ms[key, kinds[i]] = kind_floor[key, kinds[i]] = 0
        delete done[key]
    }
    least = number("floor_ms")
    floor[key] += least
    kind = name ~ /^conv_[fg]/ ? name : name == "conv_pack" ? name : name ~ /^norm/ ? "norm" : "other"
    kind_ms[key, kind] += ms
    kind_floor[key, kind] += least
    if (number("batch") == 2 && p == "bf16" && ms > least)
        printf "%.4f %s  %-22s %-17s %7d %3d>%-3d %8.4f %8.4f %6s\n", ms - least, key,
            text("layer"), name, number("n"), number("c_in"), number("c_out"), ms, least,
            percent(least, ms) | ("sort -rg >" worst)
}

# ---- single operations ----
name ~ /^(conv3|down2)_/ && text("layer") == "" && (voxels == "random" || voxels == "surface") {
    is_grad = name ~ /^conv3_grad_/ # a peer's two gradients come together
    op = sprintf("%-15s %-8s %4d  %-5s", is_grad ? "conv3_grads" : name, voxels,
        number("c_in"), p)
    n_ops = known(op, op_order, n_ops)
    if (text("run") == "peer") {
        op_peer[op] = ms
        next
    }
    op_ms[op] = ms + (is_grad ? op_ms[op] : 0)
    op_floor[op] = number("floor_ms") + (is_grad ? op_floor[op] : 0)
}
name ~ /^plan_/ { plans = plans sprintf("    %-22s %-8s %7d voxels %8.3f ms\n", name, voxels, number("n"), ms) }

END {
    printf "launch %.2f us; stream %.2f TB/s; gathers, TB/s:%s\n", launch, stream, gathers
    printf "products, TFLOP/s: fp32 %.1f  tf32 %.1f  bf16 %.1f\n", products["fp32"],
        products["tf32"], products["bf16"]
    printf "\n%-13s %-8s %5s  %-5s %9s %5s %9s %6s %6s %9s %7s %7s %9s %7s %8s\n", "network",
        "voxels", "batch", "prec", "step ms", "+-%", "floor ms", "% of", "idle %", "train ms",
        "wait", "MiB", "peer ms", "times", "peer MiB"
    for (i = 1; i <= n_steps; i++) {
        k = step_order[i]
        printf "%s %9s %5.1f %9s %6s %6s %9s %7.3f %7.0f %9s %7s %8s\n", k,
            shown("%.3f", step[k]), spread[k], shown("%.3f", floor[k]),
            percent(floor[k], step[k]),
            (k in idle ? sprintf("%.1f", idle[k]) : "-"), shown("%.3f", train[k]), wait[k],
            memory[k], shown("%.3f", peer[k]),
            times(peer[k], step[k]),
            shown("%.0f", peer_memory[k])
    }
    printf "\noperations of a step: ms (%% of it that the floor is)\n%-34s", ""
    for (j = 1; j <= n_kinds; j++) printf " %18s", kinds[j]
    for (i = 1; i <= n_steps; i++) {
        k = step_order[i]
        if (!(k in idle)) continue
        printf "\n%s", k
        for (j = 1; j <= n_kinds; j++) {
            t = kind_ms[k, kinds[j]]
            printf " %9.3f (%6s)", t, percent(kind_floor[k, kinds[j]], t)
        }
    }
    printf "\n\nsingle operations\n%-15s %-8s %4s  %-5s %9s %9s %6s %9s %7s\n", "", "voxels",
        "c", "prec", "ms", "floor ms", "% of", "peer ms", "times"
    for (i = 1; i <= n_ops; i++) {
        k = op_order[i]
        printf "%s %9s %9s %6s %9s %7s\n", k, shown("%.4f", op_ms[k]), shown("%.4f", op_floor[k]),
            percent(op_floor[k], op_ms[k]),
            shown("%.4f", op_peer[k]),
            times(op_peer[k], op_ms[k])
    }
    if (plans != "") printf "\nplans\n%s", plans
    if (ranks) printf "\n%d ranks: step, ms; of it the all-reduce that is not hidden\n", ranks
    for (i = 1; i <= n_steps; i++)
        if (step_order[i] in all)
            printf "%s %9.3f %9.3f\n", step_order[i], all[step_order[i]], comm[step_order[i]]
    close("sort -rg >" worst)
    printf "\nbatch 2, bf16: where most is lost\n%9s %-34s %-40s %11s %8s %8s %6s\n", "ms lost",
        "", "", "", "ms", "floor", "% of"
    while (n_worst++ < 15 && (getline line < worst) > 0) print line
}
