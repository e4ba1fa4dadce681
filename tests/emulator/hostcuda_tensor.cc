/* Copies to shared memory that run during the computation, ldmatrix, and the tensor
 * cores. */
#include "emulator/hostcuda_internal.h"

enum { LANES = 32 };

static void tell(const hc_fiber *f, const void *data, int bytes, bool is_write,
                 const void *pc)
{
    if (hc_hook.accessed && bytes)
        hc_hook.accessed(&f->view, data, (size_t)bytes, is_write, pc);
}

char *hc_shared_at(uint32_t offset)
{
    return hc_window + offset;
}

/* ---- copies ---- */

static unsigned long n_copied; /* bytes from device memory */

unsigned long hc_copied_bytes()
{
    return n_copied + hc_bulk_bytes();
}

static void land(hc_copy *c)
{
    if (!c->has_landed) {
        memcpy(c->to, c->from, (size_t)c->bytes);
        memset((char *)c->to + c->bytes, 0, 16 - (size_t)c->bytes);
    }
    c->has_landed = true;
}

/* To other threads the place changes at any moment from the issue to the wait, so the
 * race checker hears of it at both. */
void sp_copy_async(void *to, const void *from, int bytes, const char *file, int line)
{
    hc_fiber *f = hc_current_at(file, line);
    hc_copy c = {to, from, bytes, f->n_groups, false, __builtin_return_address(0)};

    if (bytes < 0 || bytes > 16)
        hc_fail("copy of %d bytes: %s", bytes, hc_where(f));
    if ((uintptr_t)to % 16 || (uintptr_t)from % 16) /* even where nothing is read */
        hc_fail("copy that is not aligned: %s", hc_where(f));
    if ((size_t)((char *)to - hc_space) >= HC_SHARED_SPACE)
        hc_fail("copy to what is not shared memory: %s", hc_where(f));
    hc_check_barriers((const char *)to, 16, f);
    n_copied += (unsigned long)bytes;
    hc_wgmma_copy_begins(f, to);
    tell(f, to, 16, true, c.pc);
    tell(f, from, bytes, false, c.pc);
    if (hc_is_chance(2))
        land(&c);
    else
        hc_fill_garbage(to, 16);
    f->copy.push_back(c);
}

void sp_copy_commit()
{
    hc_current()->n_groups++;
}

void hc_copy_wait(int n)
{
    hc_fiber *f = hc_current();
    size_t left = 0;

    for (hc_copy &c : f->copy) {
        if (c.group >= f->n_groups - n) {
            f->copy[left++] = c;
            continue;
        }
        land(&c);
        hc_wgmma_copy_lands(f, c.to);
        tell(f, c.to, 16, true, c.pc);
    }
    f->copy.resize(left);
}

void hc_copy_left(const hc_fiber *f)
{
    if (!f->copy.empty())
        hc_fail("a thread leaves before its copies have landed: %s", hc_where(f));
}

/* ---- warp operations ---- */

static float bf16(uint32_t bits)
{
    return __uint_as_float(bits << 16);
}

/* The hardware ignores the lower bits. */
static float tf32(uint32_t bits)
{
    return __uint_as_float(bits & ~0x1fffu);
}

struct operands {
    float a[16][16]; /* tf32: [16][8] */
    double b[16][8]; /* tf32: [8][8] */
};

static void take_bf16(const hc_warp *w, operands *o)
{
    for (int i = 0; i < LANES; i++) {
        const uint32_t *a = (const uint32_t *)w->lane[i]->operand;
        const uint64_t b = w->lane[i]->value;
        const int g = i / 4, t = i % 4;

        for (int h = 0; h < 2; h++) {
            o->a[g][2 * t + h] = bf16(a[0] >> 16 * h & 0xffff);
            o->a[g + 8][2 * t + h] = bf16(a[1] >> 16 * h & 0xffff);
            o->a[g][2 * t + 8 + h] = bf16(a[2] >> 16 * h & 0xffff);
            o->a[g + 8][2 * t + 8 + h] = bf16(a[3] >> 16 * h & 0xffff);
            o->b[2 * t + h][g] = bf16((uint32_t)(b >> 16 * h) & 0xffff);
            o->b[2 * t + 8 + h][g] = bf16((uint32_t)(b >> (32 + 16 * h)) & 0xffff);
        }
    }
}

static void take_tf32(const hc_warp *w, operands *o)
{
    for (int i = 0; i < LANES; i++) {
        const uint32_t *a = (const uint32_t *)w->lane[i]->operand;
        const uint64_t b = w->lane[i]->value;
        const int g = i / 4, t = i % 4;

        o->a[g][t] = tf32(a[0]);
        o->a[g + 8][t] = tf32(a[1]);
        o->a[g][t + 4] = tf32(a[2]);
        o->a[g + 8][t + 4] = tf32(a[3]);
        o->b[t][g] = tf32((uint32_t)b);
        o->b[t + 4][g] = tf32((uint32_t)(b >> 32));
    }
}

/* As a device's tensor cores add, in blocks. */
static void multiply_in_blocks(const hc_warp *w, const operands *o, int depth,
                               int block)
{
    float columns[8][16];

    for (int j = 0; j < 8; j++)
        for (int k = 0; k < depth; k++)
            columns[j][k] = (float)o->b[k][j];
    for (int i = 0; i < LANES; i++) {
        float *c = (float *)w->lane[i]->to;
        const int g = i / 4, t = i % 4;

        for (int h = 0; h < 4; h++)
            c[h] = hc_tensor_sum(c[h], o->a[g + 8 * (h / 2)], columns[2 * t + h % 2],
                                 depth, block);
    }
}

static void multiply(const hc_warp *w, const operands *o, int depth)
{
    const int block = hc_tensor_block(32 / depth); /* k16 of two bytes, k8 of four */
    double sums[16][8];

    if (block)
        return multiply_in_blocks(w, o, depth, block);
    for (int i = 0; i < 16; i++) {
        double sum[8] = {}; /* in registers, once the loop over them is unrolled */
        for (int k = 0; k < depth; k++)
#pragma GCC unroll 8
            for (int j = 0; j < 8; j++)
                sum[j] += (double)o->a[i][k] * o->b[k][j];
        memcpy(sums[i], sum, sizeof sum);
    }
    for (int i = 0; i < LANES; i++) {
        float *c = (float *)w->lane[i]->to;
        const int g = i / 4, t = i % 4;

        for (int h = 0; h < 4; h++)
            c[h] = (float)(c[h] + sums[g + 8 * (h / 2)][2 * t + h % 2]);
    }
}

static void load_matrices(const hc_warp *w, bool is_trans)
{
    for (int m = 0; m < 4; m++) {
        uint16_t e[8][8];

        for (int r = 0; r < 8; r++) {
            const hc_fiber *f = w->lane[8 * m + r];
            if ((uintptr_t)f->operand % 16)
                hc_fail("ldmatrix from a row that is not aligned: %s", hc_where(f));
            memcpy(e[r], f->operand, sizeof e[r]);
        }
        for (int i = 0; i < LANES; i++) {
            const int g = i / 4, t = i % 4;
            const uint16_t low = is_trans ? e[2 * t][g] : e[g][2 * t];
            const uint16_t high = is_trans ? e[2 * t + 1][g] : e[g][2 * t + 1];

            ((uint32_t *)w->lane[i]->to)[m] = (uint32_t)high << 16 | low;
        }
    }
}

void hc_tensor_complete(hc_warp *w, const hc_fiber *f)
{
    operands o;

    switch (f->op) {
    case HC_MMA_BF16:
        take_bf16(w, &o);
        multiply(w, &o, 16);
        break;
    case HC_MMA_TF32:
        take_tf32(w, &o);
        multiply(w, &o, 8);
        break;
    case HC_LDMATRIX:
    case HC_LDMATRIX_TRANS:
        load_matrices(w, f->op == HC_LDMATRIX_TRANS);
        break;
    default:
        hc_wgmma_complete(w, f);
    }
}

void hc_tensor(hc_op op, void *to, const void *operand, uint64_t value,
               const char *file, int line)
{
    hc_fiber *f = hc_current();

    f->to = to;
    f->operand = operand;
    if (op == HC_LDMATRIX || op == HC_LDMATRIX_TRANS) {
        hc_wgmma_loaded(operand);
        tell(f, operand, 16, false, __builtin_return_address(0));
    }
    hc_collective(op, ~0u, value, 0, file, line);
}
