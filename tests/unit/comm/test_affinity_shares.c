/* Shares of cores on made-up machines, which hwloc takes from its environment. */
#include "fixtures/test.h"

#include "base/sp_file.h"
#include "comm/sp_affinity.h"

/* Two packages of four cores; core i has the hyperthreads i and i + 8. */
#define TWO_PACKAGES                                                                   \
    "package:2 core:4 pu:2(indexes=0,8,1,9,2,10,3,11,4,12,5,13,6,14,7,15)"

typedef struct cores {
    uint64_t set[SP_CORE_WORDS];
} cores;

static cores of(uint64_t first)
{
    return (cores){{first}};
}

static cores share(cores from, int index, int n)
{
    cores to;
    int found = sp_affinity_share(from.set, index, n, to.set);

    assert_int_equal(found, __builtin_popcountll(to.set[0]));
    for (int w = 1; w < SP_CORE_WORDS; w++)
        assert_true(to.set[w] == 0);
    return to;
}

/* The n shares are disjoint, none is empty, and together they are everything that is
 * allowed. */
static void divides(uint64_t from, int n)
{
    uint64_t seen = 0;

    for (int i = 0; i < n; i++) {
        const uint64_t part = share(of(from), i, n).set[0];
        assert_true(part != 0 && (part & seen) == 0);
        seen |= part;
    }
    assert_true(seen == from);
}

TEST(on_two_packages)
{
    unsetenv("HWLOC_COMPONENTS"); /* of the test run; it rules out what is set here */
    setenv("HWLOC_SYNTHETIC", TWO_PACKAGES, 1);
    for (int n = 1; n <= 16; n++)
        divides(0xffff, n);
    assert_true(share(of(0xffff), 0, 2).set[0] == 0x0f0f);
    assert_true(share(of(0xffff), 1, 2).set[0] == 0xf0f0);
    assert_true(share(of(0xffff), 1, 8).set[0] == 0x0202);
    /* A batch system gave three cores of the first package and one of the second. */
    for (int n = 1; n <= 4; n++)
        divides(0x8007, n);
    assert_int_equal(__builtin_popcountll(share(of(0xffff), 0, 16).set[0]), 1);
    assert_true(share(of(0xffff), 0, 17).set[0] == 0); /* more ranks than cores */
    assert_true(share(of(0), 0, 1).set[0] == 0);
    unsetenv("HWLOC_SYNTHETIC");
}

/* clang-format off */
#define SETS(c, n)                                                                     \
    "cpuset=\"" c "\" complete_cpuset=\"" c "\" nodeset=\"" n "\" "                      \
    "complete_nodeset=\"" n "\""
#define CORE(i, c, n)                                                                  \
    "<object type=\"Core\" os_index=\"" i "\" " SETS(c, n) ">"                           \
    "<object type=\"PU\" os_index=\"" i "\" " SETS(c, n) "/></object>"
#define PACKAGE(i, c, n, inside)                                                       \
    "<object type=\"Package\" os_index=\"" i "\" " SETS(c, n) ">"                        \
    "<object type=\"NUMANode\" os_index=\"" i "\" " SETS(c, n) "/>" inside "</object>"
#define DEVICE                                                                         \
    "<object type=\"Bridge\" bridge_type=\"0-1\" depth=\"0\" "                           \
    "bridge_pci=\"0000:[00-10]\"><object type=\"PCIDev\" pci_busid=\"0000:03:00.0\" "    \
    "pci_type=\"0302 [10de:2330] [10de:16c1] a1\" pci_link_speed=\"0.0\"/></object>"

/* Cores 0 and 1 stand in one package; cores 2 and 3 in another one with a device. */
static const char machine[] =
    "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n"
    "<!DOCTYPE topology SYSTEM \"hwloc2.dtd\">\n<topology version=\"2.0\">"
    "<object type=\"Machine\" os_index=\"0\" " SETS("0xf", "0x3")
    " allowed_cpuset=\"0xf\" allowed_nodeset=\"0x3\">"
    PACKAGE("0", "0x3", "0x1", CORE("0", "0x1", "0x1") CORE("1", "0x2", "0x1"))
    PACKAGE("1", "0xc", "0x2", CORE("2", "0x4", "0x2") CORE("3", "0x8", "0x2") DEVICE)
    "</object></topology>\n";
/* clang-format on */

static uint64_t near(uint64_t allowed, const char *pci)
{
    cores from = of(allowed), to;

    sp_affinity_near(from.set, pci, to.set);
    return to.set[0];
}

TEST(beside_a_device)
{
    const char *path = "machine.xml";

    OK(sp_file_replace(path, machine, sizeof machine - 1, 0));
    unsetenv("HWLOC_COMPONENTS");
    setenv("HWLOC_XMLFILE", path, 1);
    assert_true(near(0xf, "0000:03:00.0") == 0xc);
    assert_true(near(0x6, "0000:03:00.0") == 0x4);
    assert_true(near(0x3, "0000:03:00.0") == 0x3); /* none of the allowed is near */
    assert_true(near(0xf, "0000:04:00.0") == 0xf); /* no such device */
    assert_true(near(0xf, "nonsense") == 0xf);
    assert_true(near(0xf, NULL) == 0xf);
    unsetenv("HWLOC_XMLFILE");
}
