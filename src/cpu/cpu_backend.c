/* The CPU backend: table of operations, arenas, start. */
#include <assert.h>
#include <omp.h>
#include <stdlib.h>
#include <string.h>

#include "base/sp_list.h"
#include "cpu/cpu_isa.h"

static sp_status move(sp_backend *be, void *to, const void *from, size_t bytes)
{
    (void)be;
    if (bytes)
        memcpy(to, from, bytes);
    return SP_OK;
}

static sp_status backend_fill(sp_backend *be, void *data, int byte, size_t bytes)
{
    (void)be;
    if (bytes)
        memset(data, byte, bytes);
    return SP_OK;
}

static sp_status cpu_wait(sp_backend *be)
{
    (void)be;
    return SP_OK;
}

/* Operations are complete when they return, so no pass has to wait. */
static sp_status arena_pass(sp_backend *be, sp_arena *arena, sp_pass pass)
{
    (void)be, (void)arena, (void)pass;
    return SP_OK;
}

/* Each part is a sample, so fused sums equal the plain operations' sums to the bit. */
static sp_parts fused_parts(int64_t n_rows, int n_samples)
{
    (void)n_rows;
    return (sp_parts){.n = n_samples};
}

sp_status sp_cpu_scratch_for(sp_backend *be, sp_cpu_use use, size_t bytes, void **out)
{
    sp_cpu *cpu = be->impl;

    if (bytes > cpu->scratch[use].bytes) {
        const size_t size = sp_cpu_scratch_size(bytes);

        free(cpu->scratch[use].data);
        cpu->scratch[use].bytes = 0;
        cpu->scratch[use].data = aligned_alloc(64, size);
        if (!cpu->scratch[use].data)
            return SP_FAIL(
                SP_EMEM, "no memory for %zu bytes of scratch of the CPU backend", size);
        cpu->scratch[use].bytes = size;
    }
    *out = cpu->scratch[use].data;
    return SP_OK;
}

int sp_cpu_spans(const int32_t *sample_row, int n_samples, int rows, sp_cpu_span *span)
{
    int n = 0;

    for (int b = 0; b < n_samples; b++)
        for (int32_t row = sample_row[b], end; row < sample_row[b + 1];
             row = end, n++) {
            end = (int32_t)sp_least((int64_t)row + rows, sample_row[b + 1]);
            if (span)
                span[n] = (sp_cpu_span){b, row, end};
        }
    return n;
}

/* ---- start ---- */

static sp_status cpu_open(sp_backend *be, int device, int threads)
{
    sp_cpu *cpu;
    sp_status rc;

    assert(be->precision != SP_TF32);

    be->device = device;
    omp_set_dynamic(0); /* OMP_DYNAMIC would take some threads away */
    be->threads = (int)sp_least(threads > 0 ? threads : 1, omp_get_thread_limit());
    be->impl = NULL;
    SP_TRY(SP_NEW(&cpu, 1, "the CPU backend"));
    rc = sp_cpu_choose(be, cpu);
    if (rc != SP_OK) {
        free(cpu);
        return rc;
    }
    be->impl = cpu;
    return SP_OK;
}

static void cpu_close(sp_backend *be)
{
    sp_cpu *cpu = be->impl;

    for (int use = 0; cpu && use < SP_CPU_USES; use++)
        free(cpu->scratch[use].data);
    free(cpu);
    be->impl = NULL;
}

#define ROW(slot) .slot = sp_cpu_##slot,
const sp_backend_ops sp_cpu_ops = {.name = "cpu",
                                   .open = cpu_open,
                                   .close = cpu_close,
                                   .is_host = true,
                                   .arena_create = sp_arena_create,
                                   .arena_destroy = sp_arena_destroy,
                                   .upload = move,
                                   .download = move,
                                   .fill = backend_fill,
                                   .wait = cpu_wait,
                                   .join = cpu_wait,
                                   .arena_pass = arena_pass,
                                   .fused_parts = fused_parts,
                                   SP_CPU_SLOTS(ROW) SP_OPERATIONS(ROW)};
