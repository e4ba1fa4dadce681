/* Weights of other programs: safetensors, PyTorch's zip file, PyTorch's file before 1.6;
 * and packed models, half of them with right checksums. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/sp_crc.h"
#include "base/sp_number.h"
#include "torture/fuzz/fuzz.h"
#include "weights/sp_packed.h"
#include "weights/sp_tensors.h"

static const char tensors_path[] = "weights.bin", packed_path[] = "model.spm";
typedef enum container { SAFETENSORS, ZIP, OLD, N_CONTAINERS } container;
static blob container_seed[N_CONTAINERS], packed_seed;

/* ---- seeds ---- */

/* A file that is put together. */
typedef struct writer {
    unsigned char at[8192];
    size_t n;
} writer;

static void put(writer *w, const void *data, size_t n)
{
    mutate_check(w->n + n <= sizeof w->at, "room for a seed");
    memcpy(w->at + w->n, data, n);
    w->n += n;
}

static void put_number(writer *w, uint64_t x, size_t n)
{
    unsigned char bytes[8];

    sp_put64(bytes, x);
    put(w, bytes, n);
}

static void put_unicode(writer *w, const char *text)
{
    put(w, "X", 1);
    put_number(w, strlen(text), 4);
    put(w, text, strlen(text));
}

/* The pickle of {"state_dict": {"a": float32 [2, 3], "b": float16 [4]}, "epoch": 3}. */
static void put_pickle(writer *w, bool is_old)
{
    static const char *const name[] = {"a", "b"}, *const key[] = {"0", "1"};
    static const char *const type[] = {"FloatStorage", "HalfStorage"};
    static const unsigned char count[] = {6, 4};

    put(w, "\x80\2}q\0(", 6);
    put_unicode(w, "state_dict");
    put(w, "ccollections\nOrderedDict\n)R(", 28);
    for (int i = 0; i < 2; i++) {
        put_unicode(w, name[i]);
        put(w, "ctorch._utils\n_rebuild_tensor_v2\n((", 35);
        put_unicode(w, "storage");
        put(w, "ctorch\n", 7);
        put(w, type[i], strlen(type[i]));
        put(w, "\n", 1);
        put_unicode(w, key[i]);
        put_unicode(w, "cpu");
        put(w, (unsigned char[]){'K', count[i]}, 2);
        put(w, "N", is_old);
        put(w, "tQK\0", 4);
        if (i == 0)
            put(w, "K\2K\3\x86K\3K\1\x86", 10);
        else
            put(w, "K\4\x85K\1\x85", 6);
        put(w, "\x89}tR", 4);
    }
    put(w, "u", 1);
    put_unicode(w, "epoch");
    put(w, "K\3u.", 4);
}

static blob blob_of_writer(const writer *w)
{
    return blob_copy((blob){(unsigned char *)w->at, w->n});
}

static void put_floats(writer *w)
{
    for (int i = 0; i < 6; i++)
        put_number(w, 0x3f800000u + (unsigned)i * 0x10000u, 4);
}

static void put_halves(writer *w)
{
    for (int i = 0; i < 4; i++)
        put_number(w, 0x3c00u + (unsigned)i, 2);
}

typedef struct zip_place {
    size_t at, n, size;
    const char *name;
} zip_place;

static void put_member(writer *w, writer *directory, const char *name,
                       const writer *data)
{
    const size_t at = w->n;

    put(w, "PK\3\4\0\0\0\0\0\0\0\0\0\0\0\0\0\0", 18);
    put_number(w, data->n, 4);
    put_number(w, data->n, 4);
    put_number(w, strlen(name), 4);
    put(w, name, strlen(name));
    put(w, data->at, data->n);
    put(directory, "PK\1\2\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0", 20);
    put_number(directory, data->n, 4);
    put_number(directory, data->n, 4);
    put_number(directory, strlen(name), 2);
    put(directory, "\0\0\0\0\0\0\0\0\0\0\0\0", 12);
    put_number(directory, at, 4);
    put(directory, name, strlen(name));
}

static blob make_zip(void)
{
    static writer w, directory, part[3];
    size_t at;

    put_pickle(&part[0], false);
    put_floats(&part[1]);
    put_halves(&part[2]);
    put_member(&w, &directory, "x/data.pkl", &part[0]);
    put_member(&w, &directory, "x/data/0", &part[1]);
    put_member(&w, &directory, "x/data/1", &part[2]);
    at = w.n;
    put(&w, directory.at, directory.n);
    put(&w, "PK\5\6\0\0\0\0\3\0\3\0", 12);
    put_number(&w, directory.n, 4);
    put_number(&w, at, 4);
    put_number(&w, 0, 2);
    return blob_of_writer(&w);
}

static blob make_old(void)
{
    static writer w;

    put(&w, "\x80\2\x8a\x0a\x6c\xfc\x9c\x46\xf9\x20\x6a\xa8\x50\x19.", 15);
    put(&w, "\x80\2M\xe9\3.\x80\2}.", 10);
    put_pickle(&w, true);
    put(&w, "\x80\2](", 4);
    put_unicode(&w, "0");
    put_unicode(&w, "1");
    put(&w, "e.", 2);
    put_number(&w, 6, 8);
    put_floats(&w);
    put_number(&w, 4, 8);
    put_halves(&w);
    return blob_of_writer(&w);
}

static blob make_safetensors(void)
{
    static const float data[] = {1, 2, 3, 4, 5, 6};
    const sp_tensor_out out[] = {{"conv1.weight", 3, {1, 2, 3}, data},
                                 {"conv1.bias", 1, {3}, data}};

    fuzz_must(sp_safetensors_write("seed.safetensors", 2, out, "a \"source\""));
    return blob_read("seed.safetensors");
}

static bool read_all(const sp_tensors *file)
{
    bool is_good = true;

    for (int i = 0; i < file->n; i++) {
        const sp_tensor_view *t = &file->at[i];
        float *numbers;

        if (t->count > 1 << 20)
            fuzz_fault("tensor %s of %lld elements in a small file", t->name,
                       (long long)t->count);
        numbers = malloc((size_t)t->count * sizeof *numbers + 1);
        mutate_check(numbers, "memory for numbers");
        is_good = fuzz_is_ok(sp_tensor_read(file, t, numbers), tensors_path) && is_good;
        for (int64_t k = 0; is_good && k < t->count; k++)
            if (!isfinite(numbers[k]))
                fuzz_fault("tensor %s has a number that is not finite", t->name);
        free(numbers);
    }
    return is_good;
}

static void prepare_tensors(void)
{
    container_seed[SAFETENSORS] = make_safetensors();
    container_seed[ZIP] = make_zip();
    container_seed[OLD] = make_old();
    for (int i = 0; i < N_CONTAINERS; i++) {
        sp_tensors file;

        blob_write(tensors_path, container_seed[i]);
        fuzz_must(sp_tensors_open(&file, tensors_path));
        mutate_check(file.n == 2 && read_all(&file), "a seed has its two tensors");
        sp_tensors_close(&file);
    }
}

static void prepare_packed(void)
{
    char *overrides[] = {"net.family=dummy", "net.width=0.05"};
    char *column[] = {"a", "b"}, *class[] = {"x", "y", "z"};
    double mean[] = {1, 2}, std[] = {1, 3};
    sp_weights_model m = {.path = "best.h5"};

    m.norm = (sp_normalization){.n_columns = 2,
                                .name = column,
                                .mean = mean,
                                .std = std,
                                .n_classes = 3,
                                .class_name = class};
    fuzz_must(sp_config_read(&m.config, NULL, 2, overrides));
    fuzz_must(sp_graph_build(&m.graph, &m.config, 2, 3));
    m.param = calloc((size_t)m.graph.n_floats, sizeof *m.param);
    m.running = calloc((size_t)m.graph.n_buffer_floats, sizeof *m.running);
    mutate_check(m.param && m.running, "memory for a seed");
    sp_graph_init_params(&m.graph, 1, m.param);
    sp_graph_init_buffers(&m.graph, m.running);
    fuzz_must(sp_packed_write("seed.spm", &m, SP_FP32));
    packed_seed = blob_read("seed.spm");
    m.norm = (sp_normalization){0};
    sp_weights_model_close(&m);
}

/* ---- tensors ---- */

/* clang-format off */
static const char *const json_words[] = {
    "{", "}", "[", "]", ":", ",", "\"dtype\"", "\"shape\"", "\"data_offsets\"",
    "\"F32\"", "\"F16\"", "\"I64\"", "\"BOOL\"", "\"Q4\"", "__metadata__", "0", "-1",
    "24", "4611686018427387904", "9223372036854775807", "1e3", "null", "true",
    "\"conv1.weight\"", "\"conv1.bias\"", "[0, 24]", "[24, 12]", "[[[["};
static const char *const pickle_words[] = {
    "(", ")", "}", "]", "t", "e", "u", "s", "a", "d", "l", "R", "b", "Q", "0", "1", "2",
    "q\1", "h\1", "r\xff\xff\xff\x7f", "j\0\0\0\0", "K\1", "J\xff\xff\xff\xff", "N",
    "\x85", "\x86", "\x87", "\x81", "\x92", "\x93", "\x94", "\x95", "\x8a\1\xff", ".",
    "cos\nsystem\n", "ctorch._utils\n_rebuild_parameter\n", "h\1h\1e", "X\4", "o",
    "ctorch._utils\n_rebuild_tensor_v3\n", "ccollections\nOrderedDict\n", "\x8f\x90"};
/* clang-format on */

static bool run_tensors(uint64_t *rng)
{
    static const vocabulary json = {json_words, sizeof json_words / sizeof *json_words};
    static const vocabulary pickle = {pickle_words,
                                      sizeof pickle_words / sizeof *pickle_words};
    const container kind = (container)mutate_below(rng, N_CONTAINERS);
    blob b = blob_copy(container_seed[kind]);
    sp_tensors file;
    bool is_good;

    for (size_t k = mutate_below(rng, 4) + 1; k > 0; k--)
        if (mutate_below(rng, 2))
            mutate_bytes(&b, rng);
        else if (kind == SAFETENSORS && b.n > 8) {
            const size_t head = b.n > 200 ? 200 : b.n;

            sp_put64(b.at,
                     sp_get64(b.at) + (uint64_t)mutate_words(&b, head, &json, rng));
        } else
            mutate_words(&b, b.n, &pickle, rng);
    fuzz_give(tensors_path, b);
    is_good = fuzz_is_ok(sp_tensors_open(&file, tensors_path), tensors_path);
    if (is_good)
        is_good = read_all(&file);
    sp_tensors_close(&file);
    return is_good;
}

/* ---- packed models ---- */

/* Gives the file the checksums of its present bytes, as a stranger would. */
static void seal_packed(blob *b)
{
    uint64_t header, begin;

    if (b->n < 32)
        return;
    header = sp_get64(b->at + 16);
    if (header > b->n - 32)
        return;
    begin = sp_multiple(32 + header, 64);
    if (begin > b->n)
        return;
    sp_put64(b->at + 24, b->n - begin);
    sp_put32(b->at + 8, sp_crc32c(0, b->at + 16, begin - 16));
    sp_put32(b->at + 12, sp_crc32c(0, b->at + begin, b->n - begin));
}

static bool run_packed(uint64_t *rng)
{
    const bool is_sealed = mutate_below(rng, 2) == 0;
    blob b = blob_copy(packed_seed);
    sp_weights_model model;
    bool is_good, is_same;

    for (size_t k = mutate_below(rng, 3) + 1; k > 0; k--)
        mutate_bytes(&b, rng);
    if (is_sealed)
        seal_packed(&b);
    is_same = b.n == packed_seed.n && memcmp(b.at, packed_seed.at, b.n) == 0;
    fuzz_give(packed_path, b);
    is_good = fuzz_is_ok(sp_packed_read(&model, packed_path), packed_path);
    if (is_good && !is_sealed && !is_same)
        fuzz_fault("a packed model was taken against its checksums");
    sp_weights_model_close(&model);
    return is_good;
}

const fuzz_kind fuzz_tensors = {"tensors", 60, prepare_tensors, run_tensors};
const fuzz_kind fuzz_packed = {"packed", 40, prepare_packed, run_packed};
