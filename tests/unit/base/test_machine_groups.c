/* Limits of cgroups, of both kinds and wherever above this process they are set: the
 * least one counts. */
#include "fixtures/test.h"

#include <limits.h>
#include <stdio.h>
#include <sys/stat.h>

#include "base/sp_file.h"
#include "base/sp_machine.h"

enum { MIB = 1 << 20 };

static char root[64]; /* a folder that stands for /sys/fs/cgroup */

static void begin(const char *name)
{
    snprintf(root, sizeof root, "%s/%s", test_folder(), name);
}

static void put(const char *name, const char *text)
{
    char path[PATH_MAX];

    snprintf(path, sizeof path, "%s/%s", root, name);
    OK(sp_file_make_folder_of(path));
    OK(sp_file_replace(path, text, strlen(text), 0));
}

static sp_machine_group read_of(const char *membership)
{
    char path[PATH_MAX];
    sp_machine_group group;

    put("membership", membership);
    snprintf(path, sizeof path, "%s/membership", root);
    sp_machine_read_group(root, path, &group);
    return group;
}

TEST(older_cgroups_limit_below_the_root)
{
    sp_machine_group g;

    begin("older");
    put("memory/memory.limit_in_bytes", "9223372036854771712\n");
    put("memory/slurm/memory.limit_in_bytes", "1000000000000\n");
    put("memory/slurm/job/memory.limit_in_bytes", "599785472\n");
    put("memory/slurm/job/memory.max_usage_in_bytes", "599000000\n");
    put("memory/slurm/job/task/memory.limit_in_bytes", "9223372036854771712\n");
    put("memory/slurm/job/task/memory.oom_control",
        "oom_kill_disable 0\nunder_oom 0\noom_kill 3\n");
    put("cpu/cpu.cfs_quota_us", "-1\n");
    put("cpu/pod/cpu.cfs_quota_us", "250000\n");
    put("cpu/pod/cpu.cfs_period_us", "100000\n");
    put("cpu/pod/c/cpu.cfs_quota_us", "-1\n");
    g = read_of("11:memory:/slurm/job/task\n4:cpu,cpuacct:/pod/c\n0::/\n");
    assert_true(g.memory == 572.0 * MIB);
    assert_true(g.peak == 599000000);
    assert_true(g.cores == 2.5);
    assert_int_equal(g.n_killed, 3);
    assert_non_null(strstr(g.folder, "memory/slurm/job"));
    /* A container sees its own folder as the root, and names that it does not have. */
    put("memory/memory.limit_in_bytes", "104857600\n");
    g = read_of("11:memory:/docker/0123/x\n");
    assert_true(g.memory == 100.0 * MIB);
    assert_true(g.cores == HUGE_VAL);
}

TEST(unified_cgroups_limit_below_the_root)
{
    sp_machine_group g;

    begin("unified");
    put("user/memory.max", "2147483648\n");
    put("user/memory.peak", "1073741824\n");
    put("user/cpu.max", "150000 100000\n");
    put("user/job/memory.max", "max\n");
    put("user/job/cpu.max", "max 100000\n");
    put("user/job/memory.events", "low 0\nhigh 0\nmax 12\noom 2\noom_kill 1\n");
    g = read_of("0::/user/job\n");
    assert_true(g.memory == 2048.0 * MIB);
    assert_true(g.peak == 1024.0 * MIB);
    assert_true(g.cores == 1.5);
    assert_int_equal(g.n_killed, 1);
    /* Both kinds at once: the unified hierarchy is a folder of the others. */
    put("unified/user/job/memory.max", "1048576\n");
    assert_true(read_of("3:cpu:/\n0::/user/job\n").memory == 1.0 * MIB);
}

TEST(no_cgroup_is_no_limit)
{
    sp_machine_group g;

    begin("none");
    g = read_of("0::/\n");
    assert_true(g.memory == HUGE_VAL && g.cores == HUGE_VAL && g.n_killed == 0);
    g = read_of("");
    assert_true(g.memory == HUGE_VAL && g.cores == HUGE_VAL);
    sp_machine_read_group("/nowhere", "/nowhere/either", &g);
    assert_true(g.memory == HUGE_VAL && g.cores == HUGE_VAL);
}

TEST(no_kill_is_no_word)
{
    sp_machine_kills kills;
    char text[400] = "x";

    sp_machine_look_at_kills(&kills);
    kills.of_group++; /* lest a kill of somebody else counts */
    kills.of_machine += 1000;
    sp_machine_tell_kills(&kills, text, sizeof text);
    assert_string_equal(text, "");
    kills = (sp_machine_kills){-1, 0};
    sp_machine_tell_kills(&kills, text, sizeof text);
    assert_non_null(
        strstr(text, "; memory ran out: the kernel's out-of-memory killer"));
    assert_non_null(strstr(text, "limit "));
}
