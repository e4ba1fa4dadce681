/* Every sample of an epoch is dealt exactly once, alike on all ranks, balanced, and
 * within the voxel budget. */
#include "fixtures/test.h"

#include "base/sp_rng.h"
#include "data/sp_mix.h"
#include "data/sp_sampler.h"
#include "data/sp_shard.h"

enum { MAX_RANKS = 16, MAX_SAMPLES = 400 };

static int64_t offset[MAX_SAMPLES + 1], cost[MAX_SAMPLES][SP_COST_COLUMNS];
static sp_shard shard;
static int node_of_rank[MAX_RANKS];

static sp_costs costs;
static sp_spans *rows;

/* n samples of skewed sizes, some of them empty; cost is not proportional to voxels. */
static sp_dataset fake_set(int n, uint64_t seed)
{
    sp_dataset set = {.n_shards = 1, .shard = &shard, .n_samples = n, .has_cost = true};
    sp_rng rng = sp_rng_open(seed, SP_RNG_SCENE, 0, 0);

    shard.n_samples = n;
    memset(cost, 0, sizeof cost);
    for (int i = 0; i < n; i++) {
        double u = sp_rng_unit(&rng);

        offset[i + 1] = offset[i] + (u < 0.05 ? 0 : (int64_t)(1000 * exp(1.5 * u)));
        cost[i][0] = offset[i + 1] - offset[i];
        cost[i][SP_COST_COLUMNS - 1] = cost[i][0] * (5 + i % 9);
    }
    free(rows); /* one set at a time */
    OK(sp_spans_pack(&rows, offset, n));
    set.rows = rows;
    free(costs.word);
    OK(sp_costs_pack(&costs, cost[0], n));
    set.costs = costs;
    set.n_voxels = offset[n];
    return set;
}

static sp_comm fake_comm(int rank, int size, int ranks_per_node)
{
    sp_comm comm = {.rank = rank, .size = size, .node_of_rank = node_of_rank};

    for (int r = 0; r < size; r++)
        node_of_rank[r] = r / ranks_per_node;
    comm.n_nodes = node_of_rank[size - 1] + 1;
    comm.node = node_of_rank[rank];
    return comm;
}

static sp_config fake_config(int size, int per, int accumulate, int64_t budget)
{
    sp_config config;

    memset(&config, 0, sizeof config);
    config.batch.size = config.batch.eval_size = size;
    config.batch.per = per;
    config.batch.accumulate = accumulate;
    config.batch.balance = true;
    config.batch.voxel_budget = budget;
    config.train.seed = 7;
    return config;
}

typedef struct setting {
    const sp_dataset *set;
    sp_config config;
    int n_ranks, per_node;
    bool is_training;
    sp_sampler sampler[MAX_RANKS];
    sp_comm comm[MAX_RANKS];
} setting;

/* Ranks that train. */
static setting ranks_of(const sp_dataset *set, int n_ranks, int per_node,
                        sp_config config)
{
    return (setting){.set = set,
                     .config = config,
                     .n_ranks = n_ranks,
                     .per_node = per_node,
                     .is_training = true};
}

static void open_all(setting *s)
{
    for (int r = 0; r < s->n_ranks; r++) {
        s->comm[r] = fake_comm(r, s->n_ranks, s->per_node);
        OK(sp_sampler_open(&s->sampler[r], s->set, &s->comm[r], &s->config,
                           s->is_training));
    }
}

static void close_all(setting *s)
{
    for (int r = 0; r < s->n_ranks; r++)
        sp_sampler_close(&s->sampler[r]);
}

/* Adds the most voxels that a sample can have, mixed with its partner, and its cost. */
static void add_need(const setting *s, int64_t epoch, int64_t sample, int64_t *voxels,
                     int64_t *cost_of)
{
    const sp_mix mix = sp_mix_draw(&s->config, s->set->has_subvoxel, s->set->n_samples,
                                   (uint64_t)epoch, sample);
    const int64_t partner = s->is_training ? mix.partner : -1;

    assert_int_equal(sp_sampler_partner(&s->sampler[0], epoch, sample), partner);
    *voxels += sp_dataset_voxels(s->set, sample);
    if (partner < 0) {
        *cost_of += sp_dataset_cost(s->set, sample);
        return;
    }
    *voxels += sp_dataset_voxels(s->set, partner);
    *cost_of += sp_mix_cost(&mix, sp_dataset_cost(s->set, sample),
                            sp_dataset_cost(s->set, partner));
}

/* Deals one micro-batch on all ranks, marks its samples, and checks budget and
 * agreement. */
static int check_micro(setting *s, sp_position at, int n, int micro, int n_micro,
                       int *seen)
{
    int total = 0;
    int64_t held, budget = s->config.batch.voxel_budget, dealt = 0, cost_sum = 0;
    sp_assignment assigned;

    for (int r = 0; r < s->n_ranks; r++) {
        int last = -1, k = 0;

        sp_sampler_assign(&s->sampler[r], at, micro, &assigned);
        assert_true(r == 0 || assigned.cost_sum == cost_sum);
        cost_sum = assigned.cost_sum;
        held = 0;
        for (int i = 0; i < assigned.n_samples; i++) {
            seen[assigned.sample[i]]++;
            add_need(s, at.epoch, assigned.sample[i], &held, &dealt);
            for (k = last + 1; k < n; k++) /* in order of position */
                if (sp_sampler_at(&s->sampler[r], at.epoch, at.position + k) ==
                    assigned.sample[i])
                    break;
            assert_true(k < n);
            last = k;
        }
        assert_true(budget == 0 || held <= budget || assigned.n_samples == 1);
        total += assigned.n_samples;
    }
    assert_int_equal(dealt, cost_sum);
    assert_true(micro < n_micro);
    return total;
}

static void check_epoch(setting *s, int64_t epoch)
{
    int seen[MAX_SAMPLES] = {0}, n, n_micro, other, micro, total, steps = 0;
    sp_position at = {epoch, 0};

    while ((n = sp_sampler_step(&s->sampler[0], at, &n_micro)) > 0) {
        assert_true(n <= s->sampler[0].effective);
        assert_true(n_micro >= 1 && n_micro <= n);
        for (int r = 1; r < s->n_ranks; r++) {
            assert_int_equal(sp_sampler_step(&s->sampler[r], at, &other), n);
            assert_int_equal(other, n_micro);
        }
        for (total = 0, micro = 0; micro < n_micro; micro++)
            total += check_micro(s, at, n, micro, n_micro, seen);
        assert_int_equal(total, n);
        at.position += n;
        steps++;
    }
    assert_int_equal(at.position, s->set->n_samples);
    assert_int_equal(steps, sp_sampler_steps_per_epoch(&s->sampler[0]));
    for (n = 0; n < s->set->n_samples; n++)
        assert_int_equal(seen[n], 1);
}

TEST(every_sample_exactly_once)
{
    static const int counts[] = {0, 1, 2, 5, 37, 128, 201};
    static const int sizes[] = {1, 3, 16, 50};
    static const int64_t budgets[] = {0, 2500, 9000};
    static const int ranks[] = {1, 2, 3, 5, 8};

    for (unsigned i = 0; i < sizeof counts / sizeof *counts; i++) {
        sp_dataset set = fake_set(counts[i], i);

        for (unsigned j = 0; j < 4; j++)
            for (unsigned k = 0; k < 3; k++)
                for (unsigned l = 0; l < 5; l++)
                    for (int per = SP_PER_WORLD; per <= SP_PER_RANK; per++)
                        for (int accumulate = 1; accumulate < 5; accumulate += 3) {
                            CLOSED_BY(close_all)
                            setting s = ranks_of(
                                &set, ranks[l], 2,
                                fake_config(sizes[j], per, accumulate, budgets[k]));

                            s.is_training = (j + k + l) % 4 != 0;
                            s.config.batch.balance = (i + j + l) % 3 != 0;
                            s.config.augment.mix = (sp_mixing)((i + k + l) % 3);
                            s.config.augment.mix_p = 0.7;
                            open_all(&s);
                            check_epoch(&s, (int64_t)(i + l));
                        }
    }
}

static int64_t hundred_a_voxel(void *arg, int64_t sample)
{
    return 1 + 100 * sp_dataset_voxels(arg, sample);
}

/* Micro-batches are the same sets of samples whatever the number of ranks: those of the
 * deck, and with deterministic = "world" those of a bound too. */
static void same_micro_batches(int accumulate, int64_t budget, int64_t bytes, int cut)
{
    sp_dataset set = fake_set(53, 3);
    const sp_bound bound = {bytes, hundred_a_voxel, &set};
    int n_micro, n;
    int64_t sums[2][8][20];
    sp_assignment assigned;

    memset(sums, 0, sizeof sums);
    for (int n_ranks = 1; n_ranks <= 8; n_ranks++) {
        CLOSED_BY(close_all)
        setting s = ranks_of(&set, n_ranks, 4,
                             fake_config(20, SP_PER_WORLD, accumulate, budget));
        sp_position at = {2, 20};

        s.config.train.deterministic = SP_DET_WORLD;
        open_all(&s);
        for (int r = 0; r < n_ranks; r++)
            sp_sampler_limit(&s.sampler[r], &bound);
        n = sp_sampler_step(&s.sampler[0], at, &n_micro);
        assert_int_equal(n, 20);
        if (n_micro != cut)
            fail_msg("%d ranks: %d micro-batches, expected %d", n_ranks, n_micro, cut);
        for (int r = 0; r < n_ranks; r++)
            for (int micro = 0; micro < cut; micro++) {
                sp_sampler_assign(&s.sampler[r], at, micro, &assigned);
                for (int i = 0; i < assigned.n_samples; i++) {
                    sums[0][n_ranks - 1][micro] += assigned.sample[i];
                    sums[1][n_ranks - 1][micro] +=
                        assigned.sample[i] * assigned.sample[i];
                }
            }
        assert_memory_equal(sums[0][0], sums[0][n_ranks - 1], sizeof sums[0][0]);
        assert_memory_equal(sums[1][0], sums[1][n_ranks - 1], sizeof sums[1][0]);
    }
}

TEST(independent_of_ranks)
{
    same_micro_batches(3, 0, 0, 3);
    same_micro_batches(1, 9000, 0, 8);
    same_micro_batches(1, 0, 900020, 8);
    same_micro_batches(10, 0, 900020, 10);
    same_micro_batches(1, 9000, 600000, 16);
    same_micro_batches(3, INT64_MAX, INT64_MAX, 3); /* so that no sum overflows */
}

/* No step of any epoch takes more bytes of a rank than the costliest one, whichever
 * samples are mixed. */
TEST(mixed_steps_stay_below_the_costliest)
{
    sp_dataset set = fake_set(40, 5);
    const sp_bound free = {0, hundred_a_voxel, &set};
    int64_t most, cost_of, held, greatest = 0;
    int n_micro;
    sp_assignment assigned;
    CLOSED_BY(close_all)
    setting s = ranks_of(&set, 1, 1, fake_config(6, SP_PER_WORLD, 1, 0));

    s.config.augment.mix = SP_MIX_3D;
    s.config.augment.mix_p = 0.9;
    open_all(&s);
    sp_sampler_limit(&s.sampler[0], &free);
    sp_sampler_costliest(&s.sampler[0], &most, &n_micro);
    for (int64_t epoch = 0; epoch < 200; epoch++)
        for (int64_t i = 0; i + 6 <= 40; i += 6) {
            sp_sampler_assign(&s.sampler[0], (sp_position){epoch, i}, 0, &assigned);
            assert_int_equal(assigned.n_samples, 6);
            held = 0;
            for (int k = 0; k < 6; k++)
                add_need(&s, epoch, assigned.sample[k], &held, &cost_of);
            greatest = held > greatest ? held : greatest;
        }
    assert_true(100 * greatest <= most);
    assert_true(2 * 100 * greatest > most);
}

/* A bound of bytes cuts as a budget of as many voxels does; the costliest step is at
 * least as large as any, and without a bound is whole. */
TEST(bytes_bound_as_voxels_do)
{
    sp_dataset set = fake_set(120, 9);
    int n_micro[2], n, most;
    int64_t bytes;

    for (int n_ranks = 1; n_ranks <= 5; n_ranks++) {
        const sp_bound bound = {1 + 100 * 5000, hundred_a_voxel, &set};
        const sp_bound free = {0, hundred_a_voxel, &set};
        CLOSED_BY(close_all)
        setting by_bytes =
                    ranks_of(&set, n_ranks, 4, fake_config(16, SP_PER_WORLD, 1, 0)),
                by_voxels =
                    ranks_of(&set, n_ranks, 4, fake_config(16, SP_PER_WORLD, 1, 5000));
        sp_position at = {1, 0};

        open_all(&by_bytes);
        open_all(&by_voxels);
        sp_sampler_limit(&by_bytes.sampler[0], &free);
        sp_sampler_costliest(&by_bytes.sampler[0], &bytes, &n);
        assert_int_equal(n, 1);
        assert_true(bytes >= 100 * 16 * (set.n_voxels / 120) / n_ranks);
        sp_sampler_limit(&by_bytes.sampler[0], &bound);
        sp_sampler_costliest(&by_bytes.sampler[0], &bytes, &most);
        while ((n = sp_sampler_step(&by_bytes.sampler[0], at, &n_micro[0])) > 0) {
            assert_int_equal(sp_sampler_step(&by_voxels.sampler[0], at, &n_micro[1]),
                             n);
            assert_int_equal(n_micro[0], n_micro[1]);
            assert_true(n_micro[0] <= most);
            at.position += n;
        }
    }
}

/* Dealing the longest first is within 4/3 of the best possible deal (Graham), with 8
 * samples a rank within 13/12; the best deal is at least the mean and at least the
 * largest sample. */
TEST(balanced_by_cost)
{
    int n_micro, n;
    sp_assignment assigned;

    for (int seed = 0; seed < 20; seed++) {
        sp_dataset set = fake_set(64, (uint64_t)seed);
        CLOSED_BY(close_all)
        setting s = ranks_of(&set, 4, 4, fake_config(32, SP_PER_WORLD, 1, 0));
        sp_position at = {seed, 0};
        double best, largest = 0, c;
        int64_t most = 0, sum = 0;

        open_all(&s);
        n = sp_sampler_step(&s.sampler[0], at, &n_micro);
        for (int r = 0; r < 4; r++) {
            int64_t cost_of_rank = 0;

            sp_sampler_assign(&s.sampler[r], at, 0, &assigned);
            for (int i = 0; i < assigned.n_samples; i++)
                cost_of_rank += sp_dataset_cost(&set, assigned.sample[i]);
            most = cost_of_rank > most ? cost_of_rank : most;
            sum += cost_of_rank;
        }
        assert_int_equal(assigned.cost_max, most);
        assert_int_equal(assigned.cost_sum, sum);
        for (int i = 0; i < n; i++) {
            c = (double)sp_dataset_cost(&set, sp_sampler_at(&s.sampler[0], seed, i));
            largest = c > largest ? c : largest;
        }
        best = (double)assigned.cost_sum / 4;
        best = largest > best ? largest : best;
        assert_true((double)assigned.cost_max <= best * 13 / 12);
    }
}

/* With per = "rank" each rank has a run of `size` positions of its own, with per =
 * "node" each node has one. */
TEST(scopes_own_runs)
{
    sp_dataset set = fake_set(300, 1);
    CLOSED_BY(close_all)
    setting s = ranks_of(&set, 6, 3, fake_config(5, SP_PER_RANK, 1, 0));
    sp_position at = {0, 0};
    sp_assignment assigned;
    int n_micro, n_node[2] = {0, 0};

    open_all(&s);
    for (int r = 0; r < 6; r++) {
        assert_int_equal(sp_sampler_step(&s.sampler[r], at, &n_micro), 30);
        sp_sampler_assign(&s.sampler[r], at, 0, &assigned);
        assert_int_equal(assigned.n_samples, 5);
        for (int i = 0; i < 5; i++)
            assert_int_equal(assigned.sample[i],
                             sp_sampler_at(&s.sampler[0], 0, 5 * r + i));
    }
    close_all(&s);
    s.config = fake_config(9, SP_PER_NODE, 1, 0);
    open_all(&s);
    for (int r = 0; r < 6; r++) {
        assert_int_equal(sp_sampler_step(&s.sampler[r], at, &n_micro), 18);
        sp_sampler_assign(&s.sampler[r], at, 0, &assigned);
        n_node[r / 3] += assigned.n_samples;
    }
    assert_int_equal(n_node[0], 9);
    assert_int_equal(n_node[1], 9);
}

/* The budget makes no more micro-batches than needed: with one fewer some rank would be
 * above it. */
TEST(budget_splits_as_little_as_needed)
{
    sp_dataset set = fake_set(64, 9);
    CLOSED_BY(close_all)
    setting s = ranks_of(&set, 3, 3, fake_config(48, SP_PER_WORLD, 1, 12000));
    sp_position at = {0, 0};
    int n_micro, fewer;
    bool is_broken = false;
    sp_assignment assigned;

    open_all(&s);
    sp_sampler_step(&s.sampler[0], at, &n_micro);
    assert_true(n_micro > 1 && n_micro < 48);
    close_all(&s);
    s.config = fake_config(48, SP_PER_WORLD, n_micro - 1, 0);
    open_all(&s);
    sp_sampler_step(&s.sampler[0], at, &fewer);
    assert_int_equal(fewer, n_micro - 1);
    for (int r = 0; r < 3; r++)
        for (int micro = 0; micro < fewer; micro++) {
            int64_t held = 0;

            sp_sampler_assign(&s.sampler[r], at, micro, &assigned);
            for (int i = 0; i < assigned.n_samples; i++)
                held += sp_dataset_voxels(&set, assigned.sample[i]);
            is_broken = is_broken || held > 12000;
        }
    assert_true(is_broken);
}

/* Epochs differ, an epoch repeats itself, and each sample comes first about equally
 * often. */
TEST(epochs_are_shuffled)
{
    sp_dataset set = fake_set(10, 0);
    CLOSED_BY(close_all)
    setting s = ranks_of(&set, 1, 1, fake_config(4, SP_PER_WORLD, 1, 0));
    int first[10] = {0}, pair[10] = {0};

    open_all(&s);
    for (int epoch = 0; epoch < 4000; epoch++) {
        int64_t a = sp_sampler_at(&s.sampler[0], epoch, 0);
        int64_t b = sp_sampler_at(&s.sampler[0], epoch, 1);

        first[a]++;
        pair[(b - a + 10) % 10]++;
    }
    assert_int_equal(pair[0], 0);
    for (int i = 0; i < 10; i++) { /* 400 +- 5 sigma; 444 +- 5 sigma */
        assert_in_range(first[i], 305, 495);
        assert_true(i == 0 || (pair[i] > 344 && pair[i] < 544));
    }
    close_all(&s);
    s.is_training = false;
    open_all(&s);
    for (int i = 0; i < 10; i++)
        assert_int_equal(sp_sampler_at(&s.sampler[0], 3, i), i);
}

/* The samples of a number of steps are those that the steps hold one after another. */
TEST(samples_of_steps)
{
    enum { STEPS = 12 };

    for (int n = 1; n <= 13; n++) {
        sp_dataset set = fake_set(n, 0);
        CLOSED_BY(close_all)
        setting s = ranks_of(&set, 1, 1, fake_config(4, SP_PER_WORLD, 1, 0));

        open_all(&s);
        for (int first = 0; first < n; first++) {
            sp_position at = {0, first};
            int64_t sum = 0;

            for (int step = 0, n_micro; step < STEPS; step++) {
                int64_t held;

                assert_int_equal(sp_sampler_samples(&s.sampler[0], first, step), sum);
                held = sp_sampler_step(&s.sampler[0], at, &n_micro);
                sum += held;
                at.position += held;
                if (at.position == n)
                    at = (sp_position){at.epoch + 1, 0};
            }
        }
        if (n > 1 && n < 5) /* all steps hold n samples */
            assert_int_equal(sp_sampler_samples(&s.sampler[0], 0, INT64_MAX),
                             INT64_MAX);
    }
}
