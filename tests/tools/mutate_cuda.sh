#!/bin/sh
# Breaks kernels, and the calls that launch them, one line at a time, and runs their tests
# on the emulator: every mutant must fail. Takes minutes:
# `make mutants`, which sets
#   CXX KERNEL_FLAGS   compile a kernel file: $CXX $KERNEL_FLAGS -o OBJECT FILE
#   LINK_TEST          links the tests: $LINK_TEST PROGRAM OBJECT $LINK_LIBS
# ONLY=WORD in the environment tries those whose test or file has WORD in its name.
cuda=${SP_SRCDIR-.}/cuda
cd "$SP_BUILDDIR" || exit 1
[ -f tests/emulator/libkernels.a ] || { echo "no emulator in this build"; exit 77; }
work=$(mktemp -d) || exit 1
trap 'rm -rf "$work"' EXIT
bad=0
n=0
controlled=

# build TEST KERNELS: compiles the copy of the kernels and links the test with them.
build() {
    $CXX -I"$work" $KERNEL_FLAGS -o "$work/kernel.o" "$work/cuda/$2" 2>"$work/log" &&
        $LINK_TEST "$work/$1" "$work/kernel.o" $LINK_LIBS 2>>"$work/log"
}

# passes TEST: the first test that fails ends it.
passes() {
    CMOCKA_TEST_ABORT=1 HC_WATCHDOG=5 timeout 120 $start "$work/$1" >"$work/log" 2>&1
}

# control TEST KERNELS: passes without a change, or no mutant that fails says anything.
control() {
    case "$controlled" in
    *"[$1 $2]"*) return ;;
    esac
    controlled="$controlled[$1 $2]"
    if build "$1" "$2" && passes "$1"; then
        echo "passes unchanged: $1 with $2"
    else
        cat "$work/log"
        echo "FAILS UNCHANGED: $1 with $2"
        bad=1
    fi
}

# mutant TEST KERNELS FILE SED: FILE is changed, TEST is linked with KERNELS (both of cuda/)
# and started by $start.
mutant() {
    case "$1 $3" in
    *"${ONLY-}"*) ;;
    *) return ;;
    esac
    n=$((n + 1))
    rm -rf "$work/cuda"
    cp -r "$cuda" "$work/cuda"
    control "$1" "$2"
    sed -i "$4" "$work/cuda/$3"
    if cmp -s "$cuda/$3" "$work/cuda/$3"; then
        echo "$3: nothing changes by $4"
        bad=1
        return
    fi
    if ! build "$1" "$2"; then
        cat "$work/log"
        echo "$3: does not compile after $4"
        bad=1
        return
    fi
    if passes "$1"; then
        echo "NOT FOUND by $1: $3 after $4"
        bad=1
    else
        echo "found by $1: $3 after $4"
    fi
}

start=
conv() {
    mutant test_cuda_conv conv/cuda_conv.cu "conv/$1" "$2"
}
wgmma() {
    mutant test_cuda_wgmma conv/cuda_conv_wgmma.cu "conv/$1" "$2"
}
wgrad() {
    mutant test_cuda_wgrad conv/cuda_wgrad.cu "conv/$1" "$2"
}
wgrad_wgmma() {
    mutant test_cuda_wgrad conv/cuda_wgrad_wgmma.cu "conv/$1" "$2"
}
net() {
    mutant test_cuda_net conv/cuda_wgrad.cu "conv/$1" "$2"
}
plan() {
    mutant test_cuda_plan "plan/$1" "plan/$1" "$2"
}
count() {
    mutant test_cuda_count conv/cuda_conv_wgmma.cu "conv/$1" "$2"
}
peer() {
    start="$MPIEXEC -n 3"
    mutant test_peer_memory_np3 reduce/cuda_peer.cu "reduce/$1" "$2"
    start=
}
peer4() {
    start="$MPIEXEC -n 4"
    mutant test_peer_memory_np4 reduce/cuda_peer.cu "reduce/$1" "$2"
    start=
}
rows() {
    mutant test_cuda_rows rows/cuda_norm.cu "$1" "$2"
}
loss() {
    mutant test_cuda_loss "rows/$1" device/cuda_util.cuh "$2"
}
loss_sum() {
    mutant test_cuda_loss rows/cuda_loss_sum.cu rows/cuda_loss_sum.cu "$1"
}

# sums of peers: numbers are not compared, a place is used again too early, no fixed order
peer cuda_peer_sum.cuh 's/(uint32_t)high\[k\] != p.number ||//'
peer cuda_peer_sum.cuh 's/|| (uint32_t)low\[k\] != p.number//'
peer cuda_peer_sum.cuh 's/(size_t)(p.number % 2)/(size_t)0/'
peer cuda_peer_sum.cuh 's/(size_t)(p.number % 2)/(size_t)(p.number \/ 2 % 2)/'
peer cuda_peer_sum.cuh 's/p->number += .*/p->number = 1;/'
peer cuda_peer_sum.cuh 's/sum = rank + k ? sum + of_rank/sum = rank + k ? of_rank + sum + p.rank * 0x1p-60/'
peer cuda_peer_sum.cuh 's/const int to = p.rank + k < p.size ? .*/const int to = (p.rank + 1) % p.size;/'
# sums of peers: the end of a wait, and the checks that avoid one
peer cuda_peer_sum.cuh 's/if (now - \*begin < p.limit_ns)/if (now)/'
peer cuda_peer.cu 's/SP_TRY(sp_comm_agree(t->comm, try_out(t)));//'
peer cuda_peer.cu 's/SP_TRY(sp_comm_agree(t->comm, object(t, options)));/SP_TRY(object(t, options));/'

# sums of peers: which sums, whose memory, the trial of the start, what the host reads of a wait
peer cuda_peer.cu 's/strcmp(text, "0") == 0/strcmp(text, "0") == 1/'
peer4 cuda_peer.cu 's/t->comm->n_nodes > 1)/t->comm->n_nodes > 9)/'
peer cuda_peer.cu 's/if (r == own->p.rank)/if (r <= own->p.rank)/'
peer cuda_peer.cu 's/sum->part.count <= PEER_VALUES/sum->part.count < PEER_VALUES/'
peer cuda_peer.cu 's/sum->part.count <= PEER_VALUES/sum->part.count <= PEER_VALUES + 1/'
peer cuda_peer.cu 's/(type == SP_F64 || type == SP_I64)/(type == SP_F64 || true)/'
peer cuda_peer.cu 's/sum->scope == peer_of(t)->scope/true/'
peer cuda_peer.cu 's/host\[i\] != weight \* (trial + i)/host[i] < 0/'
peer cuda_peer.cu 's/weight += r + 1/weight += r/'
peer cuda_peer.cu 's/looked_ns != own->looked_ns/looked_ns == own->looked_ns/'
peer cuda_peer.cu 's/own->looked_ns = looked_ns;//'
peer cuda_peer.cu 's/\*is_leaving = peer_word_of(&own->p.rec->leave) != 0/*is_leaving = false/'
peer cuda_peer.cu 's/return lost ? SP_FAIL/return lost > 99 ? SP_FAIL/'
peer cuda_peer.cu 's/rec->leave, SP_EMPI,/rec->leave, 0,/'

# plans: rows and parents of levels
plan cuda_plan_levels.cu 's/depth > l ? row : row - 1/row/'
plan cuda_plan_levels.cu 's/ahead += count\[w\]\[lane\]/ahead += 0/'
# units of tiles: their order, and the rows that move with them
plan cuda_plan_lists.cu 's/((1 << count_bits) - 1 - count)/count/'
plan cuda_plan_lists.cu 's/r < CUDA_ORDER_ROWS; r += 32/r < CUDA_TALL_ROWS; r += 32/'
plan cuda_plan_lists.cu 's/t = i \/ CUDA_ORDER_ROWS, r = i % CUDA_ORDER_ROWS/t = i \/ CUDA_TALL_ROWS, r = i % CUDA_TALL_ROWS/'
# maps: where partners are, descent and search, words of masks, when there is a descent
plan cuda_plan_maps.cu 's/at >= 0 \&\& at == partner << m.up/at >= 0/'
plan cuda_plan_maps.cu 's/m.sign \* (lo + d)/(lo + d)/'
plan cuda_plan_maps.cu 's/(own << m.down)/own/'
plan cuda_plan_maps.cu 's/- (own >> m.rise) + 1/- (own >> m.fall) + 1/'
plan cuda_plan_maps.cu 's/if (!(mask >> cell \& 1))/if (false)/'
plan cuda_plan_maps.cu 's/mask \& ((1u << cell) - 1)/mask \& ((2u << cell) - 1)/'
plan cuda_plan_maps.cu 's/l = m.fall - 1; l >= 0/l = m.fall - 1; l > 0/'
plan cuda_plan_maps.cu 's/if (!(c.mask >> bit \& 1))/if (false)/'
plan cuda_plan_maps.cu 's/from\[middle\] < key/from[middle] <= key/'
plan cuda_plan_maps.cu 's/low < end \&\& from\[low\] == key/from[low] == key/'
plan cuda_plan_maps.cu 's/x.is_there \&\& y.is_there \&\& z.is_there/x.is_there \&\& y.is_there/'
plan cuda_plan_maps.cu '/mask\[at++ \* pitch\] = word;/{n;s/word = 0;//}'
plan cuda_plan_maps.cu 's/mask\[k \/ 32 \* pitch\]/mask[k \/ 32]/'
plan cuda_plan_maps.cu 's/w < m.n_words; w++/w < 1; w++/'
plan cuda_plan_maps.cu 's/m->is_top || top_level < coarse ||/m->is_top ||/'
plan cuda_plan_maps.cu 's/top_level < fine + sp_kernel_reach(key.kernel)/top_level < fine/'
plan cuda_plan_maps.cu 's/row_at += m->n_out;/row_at += 0;/'
plan cuda_plan_maps.cu 's/tile_at += m->n_out/tile_at += 0 * m->n_out/'
plan cuda_plan_maps.cu 's/CUDA_MAP_WINDOW + 1;/CUDA_MAP_WINDOW;/'
plan cuda_plan_maps.cu 's/m->n_in = b->levels.n\[from->from\]/m->n_in = from->n_out/'
plan cuda_plan_maps.cu 's/map->is_full = map->centre >= 0/map->is_full = false/'
# norms: sums, channels of a block, own sums and all ranks', activations, alignment of each tensor
rows rows/cuda_norm.cu 's/b\[k\] += d \* d/b[k] += d/'
rows rows/cuda_norm.cu 's/threadIdx.y == 0 \&\& x < CHANNELS \&\& j < c/threadIdx.y == 0 \&\& j < c/'
rows rows/cuda_norm.cu 's/x < CHANNELS \&\& j < c/x < CHANNELS/'
rows rows/cuda_norm.cu 's/sums.second = all\[0\]\[x + CHANNELS\]/sums.second = all[0][x]/'
rows rows/cuda_norm.cu 's/if (a.own.part \&\& a.own.part != a.all.part)/if (false)/'
rows rows/cuda_norm.cu 's/own.second = a.own.part\[a.c + r.j\]/own.second = a.own.part[r.j]/'
rows rows/cuda_norm.cu 's/((unsigned)a.c + CHANNELS - 1) \/ CHANNELS/(unsigned)a.c \/ CHANNELS/'
rows rows/cuda_norm.cu 's/v\[k\] += r\[k\];/v[k] -= r[k];/'
rows rows/cuda_norm.cu 's/: slope \* v\[k\]/: v[k]/'
rows rows/cuda_norm.cu 's/g\[k\] = y\[k\] > 0/g[k] = y[k] >= 0/'
rows rows/cuda_norm.cu 's/(double)v\[k\] - here.mean\[k\]/(double)v[k] + here.mean[k]/'
rows rows/cuda_norm.cu 's/cuda_store<T>(dy, i, j, g);//'
rows rows/cuda_norm.cu 's/ + here.c\[k\]//'
rows rows/cuda_norm.cu 's/item.dx, is_added)/item.dx, false)/'
rows rows/cuda_norm.cu 's/f, a->x, a->y, a->res)/f, a->x, a->y, a->y)/'
rows rows/cuda_norm.cu 's/a->sums, a->x, a->y,/a->sums, a->x, a->x,/'
rows rows/cuda_norm.cu 's/f, a->x, a->dy, a->dx)/f, a->x, a->dy)/'
rows rows/cuda_norm.cu 's/cuda_rounded<T>(/(/'
# losses of terms: chunks, rows that do not count, classes that are absent, joint groups
loss_sum 's/blockIdx.y \* CHUNK + threadIdx.x;/blockIdx.y * THREADS + threadIdx.x;/'
loss_sum 's/((int64_t)blockIdx.y + 1) \* CHUNK/((int64_t)blockIdx.y + 2) * CHUNK/'
loss_sum 's/half > 0; half/half > 1; half/'
loss_sum '/l.soft\[i\] = sp_loss_softmax/{n;s/sp_loss_counts(&l.a, i)/true/}'
loss_sum 's/is_joint ? l.a.n_samples : g + 1/is_joint ? g + 1 : g + 1/'
loss_sum 's/n_present += cls->n_labels > 0/n_present += 1/'
loss_sum 's/== c ? 2 \* p : 0/== c ? p : 0/'
loss_sum 's/den = 1 + l.count/den = l.count/'
loss_sum 's/num = 1 + add_threads/num = add_threads/'
loss_sum 's/== c ? 1 - p : p/== c ? p : p/'
loss_sum 's/uint64_t key = SP_LOSS_ABSENT;/uint64_t key = 0;/'
loss_sum 's/(uint64_t)blockIdx.x << SP_LOSS_KEY_BITS | key/key/'
loss_sum 's/k < (int)blockIdx.y;/k <= (int)blockIdx.y;/'
loss_sum 's/return all\[t\] - mine/return all[t]/'
loss_sum 's/at - l.by_group.row\[g\] + 1/at - l.by_group.row[g]/'
loss_sum 's/min(begin + EACH, chunk_end(l.by_group))/begin + EACH/'
loss_sum 's/cls.n_labels \&\& at < end/at < end/'
loss_sum 's/if (l.dice \&\& sp_loss_counts(&l.a, i))/if (l.dice)/'
loss_sum 's/l.a.class_weight ? l.a.class_weight\[y\] : 1/1/'
loss_sum 's/of_group\[l.a.rule.is_joint ? 0 : b\]/of_group[0]/'
loss_sum 's/lovasz = weights > 0 ? lovasz/lovasz = weights >= 0 ? lovasz/'
loss_sum 's/while (l.by_group.n >> (bits/while (0 >> (bits/'
# coefficients ahead of a pass, the last block of a sum
rows device/cuda_rows.cuh 's/i += stride) {/i += step * CUDA_EACH_ROWS) {/'
rows device/cuda_rows.cuh 's/if (i + r \* step < n)/if (i + r * step <= n)/'
rows rows/cuda_norm.cu 's/SP_TRY(sp_cuda_norm_finish(be, a->finish));/;/'
rows rows/cuda_norm.cu 's/SP_TRY(sp_cuda_norm_grad_finish(be, a->finish));/;/'
loss cuda_loss.cu 's/\*count = 0;/;/'
mutant test_cuda_loss rows/cuda_loss.cu device/cuda_rows.cuh \
    's/for (int to = y; to < half; to += rows)/for (int to = y; to < half; to += half)/'
loss cuda_optim.cu 's/\*count = 0;/;/'
loss cuda_optim.cu 's/return arrived\[0\] == n;/return arrived[0] == 1;/'

# barriers and waits
conv cuda_conv.cu 's/sp_copy_wait<STAGES - 2>/sp_copy_wait<STAGES - 1>/'
conv cuda_conv.cu 's/__syncthreads(); \/\* this k-tile.*//'
conv cuda_conv.cu 's/__syncthreads(); \/\* the remaining.*//'
conv cuda_conv_table.cuh '/make_int4(-1/{n;s/__syncthreads();//}'
conv cuda_conv_table.cuh '/t.has\[r \/ 16\] = has/{n;n;s/__syncthreads();//}'
conv cuda_conv_table.cuh '/t.n = __popc/{n;n;s/__syncthreads();//}'
conv cuda_conv_out.cuh '/describe_chunk();/{n;s/__syncwarp();//}'
conv cuda_conv_out.cuh '/pass<false>(rows);/{n;s/__syncwarp();//}'
conv cuda_conv_out.cuh '/add_columns<true, true>(n_rows/{n;s/__syncwarp();//}'
conv cuda_conv_out.cuh '/p = tid \/ T::BN;/{n;n;n;n;s/__syncthreads();//}'
wgmma cuda_conv_wgmma.cu 's/sp_copy_wait<AHEAD - 1>/sp_copy_wait<AHEAD>/'
wgmma cuda_conv_wgmma.cu 's/sp_fence_async();//'
wgmma cuda_conv_wgmma.cu 's/__syncthreads(); \/\* copies of this step.*//'
wgmma cuda_conv_wgmma.cu 's/ wait<T::LAG>(sum)/ wait<T::LAG + 1>(sum)/'
wgmma cuda_conv_wgmma.cu 's/ wait<0>(sum);//'
wgmma cuda_conv_wgmma.cu 's/ wait<0>(sum)/ wait<1>(sum)/'
wgmma cuda_conv_wgmma.cu 's/__syncthreads(); \/\* the ring and.*//'
wgmma cuda_conv_wgmma.cu 's/sp_wgmma_fence();//'
wgmma cuda_conv_wgmma.cu 's/sp_wgmma_commit();//'
wgmma cuda_conv_wgmma.cu 's/(begun + (unsigned)step) % T::STAGES/((unsigned)step % T::STAGES)/'
wgmma cuda_conv_wgmma.cu 's/(q ^ r \* CHUNKS \/ 8 % CHUNKS)/q/'
wgmma cuda_conv_wgmma.cu 's/(T::ATOM >> 4 |/(T::ATOM >> 3 |/'
wgmma cuda_conv_wgmma.cu 's/(warp \/ 4 \* T::MT + i) \* 64/i * 64/'
wgmma cuda_conv_wgmma.cu 's/T::ROW == 128 ? 1u : 2u/1u/'
wgmma cuda_conv_wgmma.cu 's/x + T::BM \* part/x + part/'
wgmma cuda_conv_wgmma.cu 's/w + T::BN \* part/w + part/'
wgmma cuda_conv_wgmma.cu 's/w += (unsigned)a.y.c, to/to/'
wgmma cuda_conv_load.cuh 's/x + p \* base::ROW/x/'
wgmma cuda_conv_load.cuh 's/p \* base::A_PART/0/'
wgmma cuda_conv_wgmma.cu 's/groups >> (warp \/ 4 \* 4 \* T::MT)/groups/'
# clusters: phases, arrivals, parts of the weights, the lists, who leaves when
wgmma cuda_conv_wgmma.cu 's/weights.wait(begun + (unsigned)step);//'
wgmma cuda_conv_wgmma.cu 's/, parity(step) ^ 1)/, parity(step))/'
wgmma cuda_conv_wgmma.cu 's/sp_mbarrier_wait(free + 8 \* i, parity(step) ^ 1);/;/'
wgmma cuda_conv_wgmma.cu 's/(unsigned)(step + AHEAD)));/(unsigned)step));/'
wgmma cuda_conv_wgmma.cu 's/weights.release(weights.stage(begun + (unsigned)s));/;/'
wgmma cuda_conv_wgmma.cu 's/(columns \* T::PARTS/(SHARE * T::PARTS/'
wgmma cuda_conv_wgmma.cu 's/w += (unsigned)from;//'
wgmma cuda_conv_wgmma.cu 's/own |= there\[i\]/own |= there[0]/'
wgmma cuda_conv_wgmma.cu 's/sp_cluster_wait(); \/\* the other blocks have begun.*/;/'
wgmma cuda_conv_wgmma.cu 's/full + 8 \* i, ALL)/full + 8 * i, 3)/'
wgmma cuda_conv_wgmma.cu 's/SHARE \* (int)sp_cluster_rank()/SHARE * ((int)sp_cluster_rank() % 2)/'
wgmma cuda_conv_wgmma.cu 's/begun += (unsigned)steps;//'
wgmma cuda_conv_load.cuh 's/(unsigned)(word \* CONV_WORD) \* of_offset/0/'
wgmma cuda_conv_wgmma.cu 's/u < first + T::STEP_UNITS/u < first + 1/'
wgmma cuda_conv_wgmma.cu 's/groups = t.groups\[conv_entry_of(a, first)\]/groups = t.groups[0]/'
wgmma cuda_conv_wgmma.cu 's/b.column0 + h \* tile::BN/b.column0/'
wgmma cuda_conv_load.cuh 's/cuda_chunk_bytes(at, a.from.c \* BYTES)/16/'
wgrad cuda_wgrad.cu 's/sp_copy_wait<W::STAGES - 2>/sp_copy_wait<W::STAGES - 1>/'
wgrad cuda_wgrad.cu 's/__syncthreads(); \/\* this step.*//'
wgrad_wgmma cuda_wgrad_wgmma.cu 's/sp_copy_wait<T::AHEAD - 1>/sp_copy_wait<T::AHEAD>/'
wgrad_wgmma cuda_wgrad_wgmma.cu 's/sp_fence_async();//'
wgrad_wgmma cuda_wgrad_wgmma.cu 's/__syncthreads(); \/\* copies of this step.*//'
wgrad_wgmma cuda_wgrad_wgmma.cu 's/sp_wgmma_wait<T::LAG>(sum)/sp_wgmma_wait<T::LAG + 1>(sum)/'
wgrad_wgmma cuda_wgrad_wgmma.cu 's/sp_wgmma_wait<0>(sum)/sp_wgmma_wait<1>(sum)/'
wgrad_wgmma cuda_wgrad_wgmma.cu 's/sp_wgmma_fence();//'
wgrad_wgmma cuda_wgrad_wgmma.cu 's/sp_wgmma_commit();//'
net cuda_wgrad.cu 's/SP_TRY(cuda_wait_event(cuda->side, .*//'
net cuda_wgrad.cu 's/return cuda_wait_event(cuda_of(be)->compute, .*/(void)be; return SP_OK;/'
net cuda_wgrad.cu 's/SP_CUDA(cudaEventRecord(cuda->joined, .*//'

# the tile of a call, by the bytes that it copies
count cuda_tile.h 's/const int first = is_shared ? 1 : 0/const int first = 0/'
count cuda_tile.h 's/is_shared ? CUDA_WGMMA_FOUR : 1}/CUDA_WGMMA_FOUR}/'
count cuda_conv_wgmma.cu 's/if (tile.columns == 256)$/if (tile.columns == 512)/'
count cuda_conv_wgmma.cu 's/return tile.columns == 256 ?/return tile.columns == 512 ?/'
count cuda_conv_wgmma.cu 's/if (tile.cluster == 1)$/if (tile.cluster < 9)/'

# bounds: a row, a column or a pair too many
conv cuda_conv_table.cuh 's/at >= a.y.n ? -1/at > a.y.n ? -1/'
conv cuda_conv_out.cuh 's/if (rows\[r\] >= 0 \&\& column0/if (column0/'
conv cuda_conv_out.cuh 's/lane < 16 \&\& rows\[lane\] >= 0/lane < 16/'
conv cuda_conv_out.cuh 's/n + N <= a.y.c/true/'
conv cuda_conv_load.cuh 's/cuda_chunk_bytes(at, a.from.c \* BYTES)/16/'
conv cuda_conv_load.cuh 's/i < 0 ? 0 : bytes/bytes/'
conv cuda_conv_load.cuh 's/pitch, from\[e\], 0)/pitch, 0, 0)/'
conv cuda_conv_load.cuh 's/offset = after;//'
conv cuda_conv_load.cuh 's/after = t.offset\[entry + 1\]/after = t.offset[entry]/'
conv cuda_conv_load.cuh 's/x += base::ROW;//'
conv cuda_conv_load.cuh 's/w += of_tile;//'
wgmma cuda_conv_load.cuh 's/left = deep;/left = 1;/'
wgrad cuda_wgrad_block.cuh 's/is_there = left > r/is_there = left >= r/'
wgrad cuda_wgrad_block.cuh 's/row < 0 ? 0 : cuda_chunk_bytes/cuda_chunk_bytes/'
wgrad cuda_wgrad_block.cuh 's/first < bytes ? row : -1/0/'
wgrad cuda_wgrad_block.cuh 's/left -= W::PAIRS/left -= 0/'
wgrad_wgmma cuda_wgrad_block.cuh 's/left > r \* W::AT_ONCE/left > 0/'
wgrad_wgmma cuda_wgrad_block.cuh 's/first < bytes ? row : -1/0/'
wgrad_wgmma cuda_wgrad_wgmma.cu 's/i >= a.x.c || o >= a.dy.c/o >= a.dy.c/'
wgrad_wgmma cuda_wgrad_wgmma.cu 's/i >= a.x.c || o >= a.dy.c/i >= a.x.c/'

# offsets that are skipped, rounding, and the order of sums
conv cuda_conv.cu 's/all >> (warp % T::WM \* T::MT) &/all \&/'
conv cuda_conv_table.cuh 's/a.is_shared ? has >> 1 : 0/0/'
conv cuda_conv_table.cuh 's/d < 16; d \*= 2/d < 8; d *= 2/'
conv cuda_conv_table.cuh 's/nbr += __popc(\*mask)/nbr += 0/'
conv cuda_mma.cuh 's/f\[i\] = sp_round_tf32(f\[i\])/f[i] = f[i]/'
conv cuda_mma.cuh 's/u \* 2 + lane \/ 16/u * 2/'
conv cuda_conv_out.cuh 's/v\[j\] += old\[j\]/v[j] += 0/'
conv cuda_conv_out.cuh 's/v += a.is_added ? cuda_get(a.y, i, n) : 0/v += 0/'
conv cuda_conv_out.cuh 's/apply_norm(i, n - a.column/apply_norm(i, n/'
conv cuda_conv_out.cuh 's/const int m = n - a.column;/const int m = n;/'
conv cuda_conv_out.cuh 's/const int m = column0 + c - a.column;/const int m = column0 + c;/'
conv cuda_conv_out.cuh 's/= first + c - a.column/= first + c/'
conv cuda_conv_out.cuh 's/residual.part\[at + s/residual.part[at + 0 * s/'
conv cuda_conv_out.cuh '/ pass_residual(rows);/{n;s/__syncwarp();//}'
conv cuda_conv_out.cuh '/add_columns<false, false>(n_rows/{n;s/__syncwarp();//}'
conv cuda_conv_out.cuh 's/side > 0/side >= 0.5f/'
conv cuda_conv_out.cuh 's/y\[j\] > 0/y[j] >= 0.5f/'
conv cuda_conv_out.cuh 's/value + T::WARPS \* 16/value + 0 * 16/'
conv cuda_conv_out.cuh 's/? cuda_float_of(cuda_bf16_of(v))/? v/'
conv cuda_conv_out.cuh '/cuda_unpack(result, v);/d'
conv cuda_conv_out.cuh 's/i < EACH; i++/i < 1; i++/'
conv cuda_conv_out.cuh 's/i % GROUPS == 0/i == 0/'
conv cuda_conv_out.cuh 's/p = is_first ||/p = false ||/'
conv cuda_conv_out.cuh 's/q = is_first ? 0/q = true ? 0/'
conv cuda_conv_out.cuh 's/(part0 + p) \* 2/part0 * 4/'
conv cuda_mma.cuh 's/make_float2(c0, c1)/make_float2(c1, c0)/'
wgrad cuda_wgrad.cuh 's/return sp_round_tf32(v)/return v/'
wgrad cuda_wgrad_block.cuh 's/at += W::PAIRS/at += W::PAIRS - 1/'
wgrad cuda_wgrad.cu 's/(k - items.k0 + a.K) % a.K/k/'
wgrad cuda_wgrad.cu 's/items->k0 = k/items->k0 = 0/'
# wgmma: swizzle, strides of the descriptors, warpgroups, sides that change places
wgrad_wgmma cuda_wgrad_wgmma.cu 's/(q % LANES ^ row % LANES)/(q % LANES)/'
wgrad_wgmma cuda_wgrad_wgmma.cu 's/(T::PART >> 4) << 16/(ATOM >> 4) << 16/'
wgrad_wgmma cuda_wgrad_wgmma.cu 's/(ATOM >> 4 | 1u << 30) << 32/(ATOM >> 3 | 1u << 30) << 32/'
wgrad_wgmma cuda_wgrad_wgmma.cu 's/group \* T::PART/0 * T::PART/'
wgrad_wgmma cuda_wgrad_wgmma.cu 's/p += DEPTH \* ROW/p += 2 * DEPTH * ROW/'
wgrad_wgmma cuda_wgrad_wgmma.cu 's/std::swap(a.in, a.out);//'
wgrad_wgmma cuda_wgrad_wgmma.cu 's/if (T::IS_EXCHANGED) {$/if (a.K < 0) {/'
wgrad_wgmma cuda_wgrad_wgmma.cu 's/lane % 4 \* 2;/lane % 4;/'
wgrad cuda_wgrad.cu 's/SP_TRY(cuda_copy_operand(be, &a->dy));/;/'
wgrad cuda_wgrad_block.cuh 's/(int)blockIdx.x % across/(int)blockIdx.x \/ across/'

echo "$n mutants"
exit $bad
