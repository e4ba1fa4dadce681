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
function most(a, b) { return a > b ? a : b }
function parts(c) { return int((c + 127) / 128) }

# ---- what the counts foresee: no measurement ----
# The longest of three times, of products, of what passes the L2 and of what the memory
# moves, at the rates that this run found, and a launch. Products go at 0.8 of theirs,
# for the beginnings and ends of blocks. Tiles of 128 rows and at most 128 columns: each
# row is gathered once a column tile, each tile reads the weights of every offset that
# one of its rows has, and products skip by 16 rows. Waste of both over the pairs, by
# level, of the plan's order (cuda_map.h): lidar of a scan of 64 beams, the others as
# spbench makes them. With 590 TFLOP/s, 5.5 TB/s of the L2, 4.3 TB/s and 2 us, as an
# H200 might have: 11.0 ms for minkunet34-3, batch 2; 0.022 ms for conv3_forward on
# 50,000 random voxels, 0.175 ms on those of a surface.
function waste(rows, voxels, kernel, level, list) {
    if (kernel == 5) return rows == 16 ? 2.9 : 3.9
    if (kernel != 3 || !((voxels, rows) in wastes)) return 1
    split(wastes[voxels, rows], list, " ")
    return list[most(1, level + 1)]
}
function foreseen_ms(gflop, l2_gbytes, gbytes) {
    if (!(products[p] > 0 && l2 > 0 && stream > 0 && launch > 0)) return 0
    return launch / 1e3 + \
        most(gflop / (0.8 * products[p]), most(l2_gbytes / l2, gbytes / stream))
}
# foreseen_conv: the expected time of a row of forward or input gradient at this level.
function foreseen_conv(kernel, level, pairs, c_in, c_out, gbytes, bytes, weights) {
    bytes = p == "bf16" ? 2 : 4
    weights = waste(128, voxels, kernel, level) * pairs / 128 * c_in * c_out
    return foreseen_ms(2e-9 * pairs * c_in * c_out * waste(16, voxels, kernel, level),
        1e-9 * bytes * (pairs * c_in * parts(c_out) + weights), gbytes)
}
function foreseen_grad(pairs, c_in, c_out, gbytes, bytes) {
    bytes = p == "bf16" ? 2 : 4
    return foreseen_ms(2e-9 * pairs * c_in * c_out,
        1e-9 * bytes * pairs * (c_in * parts(c_out) + c_out * parts(c_in)), gbytes)
}
# ms, at the most
function goal(op, voxels, size, bar) {
    n_goals++
    goal_key[n_goals] = op ~ /^minkunet/ ? \
        sprintf("%-13s %-8s %5d  %-5s", op, voxels, size, "bf16") : \
        sprintf("%-15s %-8s %4d  %-5s", op, voxels, size, "bf16")
    goal_bar[n_goals] = bar
}

BEGIN {
    n_kinds = split("conv_forward conv_grad_input conv_grad_weight conv_pack norm other", kinds, " ")
    wastes["lidar", 16] = "1.28 1.45 1.45 1.45 1.44"
    wastes["lidar", 128] = "1.51 1.69 1.67 1.67 1.70"
    wastes["surface", 16] = "1.05 1.04 1.14 1.25 1.49"
    wastes["surface", 128] = "1.12 1.15 1.37 1.66 2.28"
    wastes["random", 16] = "1.01"
    wastes["random", 128] = "1.07"
    goal("minkunet34-3", "lidar", 2, 20)
    goal("conv3_forward", "random", 256, 0.03)
    goal("conv3_forward", "surface", 256, 0.21)
    goal("down2_rebuilt", "random", 256, 0.36)
    goal("down2_rebuilt", "surface", 256, 0.36)
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
    l2 = number("gbytes_s") / 1e3 # of the longest rows in the end
    gathers = gathers sprintf("  %s B %.2f", substr(name, 8), l2)
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
        floor[key] = foreseen[key] = 0
        for (i = 1; i <= n_kinds; i++) kind_ms[key, kinds[i]] = kind_floor[key, kinds[i]] = 0
        delete done[key]
    }
    least = number("floor_ms")
    floor[key] += least
    gbytes = 1e-3 * ms * number("gbytes_s")
    foreseen[key] += name ~ /^conv_(forward|grad_input)$/ ? \
        foreseen_conv(number("kernel"), number("level"), number("pairs"),
            number("c_in"), number("c_out"), gbytes) : \
        name == "conv_grad_weight" ? foreseen_grad(number("pairs"), number("c_in"),
            number("c_out"), gbytes) : foreseen_ms(0, 0, gbytes)
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
    if (name == "conv3_forward")
        op_foreseen[op] = foreseen_conv(3, 0, number("pairs"), number("c_in"),
            number("c_out"), 1e-3 * ms * number("gbytes_s"))
    op_pairs[op] = number("pairs") / most(1, number("n"))
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
    printf "\ngoals: ms at the most; floor and pairs a voxel of what was measured;"
    printf " foreseen: by counts, no measurement\n%-34s %9s %9s %4s %9s %9s %6s\n", "", "ms",
        "goal", "met", "floor ms", "foreseen", "pairs"
    for (i = 1; i <= n_goals; i++) {
        k = goal_key[i]
        t = step[k] + op_ms[k] # one of them
        printf "%-34s %9s %9.3f %4s %9s %9s %6s\n", k, shown("%.4f", t), goal_bar[i],
            (t == 0 ? "-" : t <= goal_bar[i] ? "yes" : "no"),
            shown("%.4f", floor[k] + op_floor[k]),
            shown("%.4f", foreseen[k] + op_foreseen[k]), shown("%.2f", op_pairs[k])
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
