/* Predictions that spvox apply puts back onto a scan. */
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "comm/sp_comm.h"
#include "torture/fuzz/fuzz.h"
#include "torture/fuzz/mutate_h5.h"
#include "torture/fuzz/scan_seeds.h"
#include "h5/sp_h5.h"
#include "vox/vox.h"

static const char path[] = "prediction.h5", scan_path[] = "scan.txt";
static blob stored[H5_N_STORES + 1], scan;

/* Writes predictions of one scan as sptrain predict does. */
static sp_status write_prediction(void)
{
    static const int64_t offsets[] = {0, SEED_POINTS}, two = 2, n = SEED_POINTS;
    static const int64_t ignore = 255;
    char *name[] = {"scan.txt"}, *class_name[] = {"ground", "tree"};
    uint8_t label[SEED_POINTS];
    uint64_t row[SEED_POINTS];
    sp_h5 *file;

    for (int i = 0; i < SEED_POINTS; i++) {
        label[i] = i % 2;
        row[i] = (uint64_t)i;
    }
    SP_TRY(sp_h5_create(&file, path));
    SP_TRY(sp_h5_attr_write(file, "/", "ignore_label", SP_H5_I64, -1, &ignore));
    SP_TRY(sp_h5_attr_write_texts(file, "/", "class_names", 2, class_name));
    SP_TRY(sp_h5_write_texts(file, "/names", 1, name));
    SP_TRY(sp_h5_write(file, "/point_offsets", SP_H5_I64, 1, &two, offsets));
    SP_TRY(sp_h5_write(file, "/point_labels", SP_H5_U8, 1, &n, label));
    SP_TRY(sp_h5_write(file, "/point_index", SP_H5_U64, 1, &n, row));
    return sp_h5_close(file);
}

static void prepare(void)
{
    fuzz_must(write_prediction());
    scan = seed_text(false);
    h5_store_all(path, stored);
}

static const char *any_ending(uint64_t *rng)
{
    return mutate_below(rng, 2) ? "out.label" : "out.ply";
}

static bool use(uint64_t *rng)
{
    char out[16], *argv[] = {"apply", "prediction.h5", "scan.txt", "--out", out, NULL};
    sp_comm alone;
    sp_status rc;

    strcpy(out, any_ending(rng));
    unlink(out);
    sp_comm_open_self(&alone);
    rc = vox_apply(5, argv, &alone);
    sp_comm_close(&alone);
    if (rc == SP_OK && access(out, R_OK) != 0)
        fuzz_fault("no %s, and status 0", out);
    return fuzz_is_ok(rc, path);
}

static void put_impostor(uint64_t *rng)
{
    static const char *const sets[] = {"/names", "/point_offsets", "/point_labels",
                                       "/point_index"};

    if (mutate_below(rng, 3) > 0)
        h5_put_impostor(path, sets[mutate_below(rng, 4)], h5_any_impostor(rng));
    else
        h5_put_attribute(path, mutate_below(rng, 2) ? "class_names" : "ignore_label",
                         h5_any_attribute(rng));
}

static bool run(uint64_t *rng)
{
    size_t how = mutate_below(rng, 5), store = mutate_below(rng, H5_N_STORES + 1);

    blob_write("neighbour.h5", stored[H5_N_STORES]);
    fuzz_put_seed(path, stored[store], how < 2, rng);
    fuzz_put(scan_path, scan);
    if (how == 2)
        h5_damage_chunk(path, rng);
    if (how == 3)
        h5_change_value(path, rng);
    if (how == 4)
        put_impostor(rng);
    return use(rng);
}

const fuzz_kind fuzz_prediction = {"prediction", 30, prepare, run};
