/* Ranks get the devices that the rules say, on made-up nodes. */
#include "fixtures/test.h"

#include "api/sp_placement.h"

enum { MANY = 8 };

static const sp_doubles none = {0};

/* A rank of a node of `size` ranks; its process sees `visible` devices. */
static sp_place place(int rank, int node, int local, int size, int visible)
{
    sp_place p = {.rank = rank,
                  .node = node,
                  .local_rank = local,
                  .local_size = size,
                  .n_visible = visible};

    snprintf(p.host, sizeof p.host, "node%d", node);
    return p;
}

/* Fills in the name that the driver gives to the rank's device, number `number` of its
 * node. */
static void name_device(sp_place *p, int number)
{
    snprintf(p->what.uuid, sizeof p->what.uuid, "GPU-%d-%d", p->node, number);
    snprintf(p->what.pci, sizeof p->what.pci, "0000:%02x:00.0", number);
    snprintf(p->what.name, sizeof p->what.name, "H200");
}

static void choose(sp_place *p, const sp_doubles *devices, bool may_share, int want)
{
    OK(sp_placement_choose(p, devices, may_share));
    assert_int_equal(p->device, want);
    name_device(p, want);
}

static void refuse(sp_place p, const sp_doubles *devices, sp_status want,
                   const char *text)
{
    FAILS(sp_placement_choose(&p, devices, false), want, text);
    assert_int_equal(p.device, -1);
}

TEST(each_rank_has_its_own)
{
    sp_place p[MANY];
    bool is_shared;

    for (int r = 0; r < MANY; r++) {
        p[r] = place(r, r / 4, r % 4, 4, 4);
        choose(&p[r], &none, false, r % 4);
    }
    OK(sp_placement_check(p, MANY, false, &is_shared));
    assert_false(is_shared);
    assert_string_equal(sp_placement_advice(p, MANY), "");
}

TEST(the_deck_names_devices)
{
    double at[] = {2, 3};
    const sp_doubles devices = {.at = at, .n = 2};
    sp_place p = place(0, 0, 0, 2, 4), q = place(1, 0, 1, 2, 4);

    choose(&p, &devices, false, 2);
    choose(&q, &devices, false, 3);
    refuse(place(2, 0, 2, 3, 4), &devices, SP_EUSAGE,
           "run.devices names 2 devices, the node node0 runs 3 ranks");
    refuse(place(0, 0, 0, 2, 2), &devices, SP_EUSAGE,
           "run.devices names device 2, the process sees 2 (0 to 1)");
    p = place(2, 0, 2, 3, 4);
    choose(&p, &devices, true, 2); /* begins again */
}

TEST(the_only_one_in_sight)
{
    double at[] = {2, 3};
    const sp_doubles devices = {.at = at, .n = 2};
    sp_place p[2] = {place(0, 0, 0, 2, 1), place(1, 0, 1, 2, 1)};
    bool is_shared;

    choose(&p[0], &none, false, 0);
    choose(&p[1], &devices, false, 0);
    name_device(&p[1], 1); /* in fact another device: the launcher bound each */
    OK(sp_placement_check(p, 2, false, &is_shared));
    assert_false(is_shared);
    assert_non_null(strstr(sp_placement_advice(p, 2), "--gpu-bind=none"));
    p[1].node = 1; /* a node with one rank loses nothing */
    assert_string_equal(sp_placement_advice(p, 2), "");
}

TEST(idle_devices_are_told)
{
    sp_place p[3] = {place(0, 0, 0, 1, 8), place(1, 1, 0, 2, 2), place(2, 1, 1, 2, 2)};
    char text[256];

    sp_placement_idle(p, 3, text, sizeof text);
    assert_string_equal(text, "7 of the 8 CUDA devices on host node0 are idle: `sptrain "
                              "launch`, or mpirun -n 8, uses all of a node");
    sp_placement_idle(p + 1, 2, text, sizeof text);
    assert_string_equal(text, "");
    p[0].n_visible = 1; /* the launcher chose it */
    sp_placement_idle(p, 1, text, sizeof text);
    assert_string_equal(text, "");
}

TEST(two_ranks_on_one)
{
    sp_place p[3] = {place(0, 0, 0, 2, 1), place(1, 1, 0, 1, 1), place(2, 0, 1, 2, 1)};
    bool is_shared;

    for (int r = 0; r < 3; r++)
        choose(&p[r], &none, false, 0);
    assert_int_equal(sp_placement_check(p, 3, false, &is_shared), SP_EDEVICE);
    assert_string_equal(
        sp_error_last()->message,
        "ranks 0 and 2 on node0 have the same device, H200 GPU-0-0: start "
        "one rank a device, or set run.oversubscribe = true");
    OK(sp_placement_check(p, 3, true, &is_shared));
    assert_true(is_shared);
}

TEST(parts_of_one)
{
    sp_place p[2] = {place(0, 0, 0, 2, 1), place(1, 0, 1, 2, 1)};
    bool is_shared;

    for (int r = 0; r < 2; r++) {
        choose(&p[r], &none, false, 0);
        snprintf(p[r].what.uuid, sizeof p[r].what.uuid, "MIG-%d", r);
    }
    OK(sp_placement_check(p, 2, false, &is_shared));
    assert_true(is_shared);                             /* NCCL would refuse them */
    assert_string_equal(sp_placement_advice(p, 2), ""); /* no process sees two */
}

TEST(more_ranks_than_devices)
{
    sp_place p = place(2, 0, 2, 3, 2);

    refuse(p, &none, SP_EDEVICE, "3 ranks on node0, which has 2 CUDA devices");
    choose(&p, &none, true, 0);
    refuse(place(0, 0, 0, 1, 0), &none, SP_EDEVICE, "no usable CUDA device");
}
