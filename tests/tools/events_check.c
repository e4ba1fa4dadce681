/* events_check RUN: demands that the event files of a run folder say what its
 * metrics.jsonl says: every number, as float32, once and at its step, and no other.
 * Prints counts; ends with 1 and words at the first difference. */
#include <jansson.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/sp_text.h"
#include "fixtures/events_read.h"

static const char *const train_keys[] = {
    "loss", "lr", "momentum", "grad_norm", "voxels", "imbalance", "memory_bytes", NULL};
static const char *const time_keys[] = {"step_s",    "data_wait_s", "comm_exposed_s",
                                        "forward_s", "backward_s",  "update_s",
                                        "plan_s",    NULL};
static const char *const eval_keys[] = {"loss",       "accuracy",       "miou",
                                        "point_miou", "point_accuracy", NULL};

static event_list events;
static long n_steps, n_evals, n_expected;

static void die(const char *what, const char *tag, long long step)
{
    printf("%s: %s, step %lld\n", what, tag, step);
    exit(1);
}

/* Demands the value under the tag at the step; null: that there is none. */
static void expect(const char *group, const char *key, const json_t *value,
                   long long step)
{
    char tag[4096], shown[EVENTS_TAG];
    int n = 0;

    snprintf(tag, sizeof tag, "%s/%s", group, key);
    sp_text_printable(shown, sizeof shown, tag, false);
    for (int i = 0; i < events.n; i++) {
        const event_value *v = &events.value[i];

        if (v->kind != EVENT_SCALAR || v->step != step || strcmp(v->tag, shown) != 0)
            continue;
        n++;
        if (!json_is_number(value) || v->scalar != (float)json_number_value(value))
            die("another value", shown, step);
    }
    if (n != json_is_number(value))
        die(n ? "several values, or one too many" : "no value", shown, step);
    n_expected += n;
}

static void expect_all(const char *group, const char *const *keys, const json_t *line,
                       long long step)
{
    for (; *keys; keys++)
        expect(group, *keys, json_object_get(line, *keys), step);
}

/* The values of a key of the line, in a group that is named after it. */
static void expect_classes(const char *prefix, const char *key, json_t *line,
                           long long step)
{
    json_t *classes = json_object_get(line, key), *value;
    const char *name;
    char group[64];

    snprintf(group, sizeof group, "%s%s", prefix, key);
    if (classes)
        json_object_foreach(classes, name, value) expect(group, name, value, step);
}

/* Plain or merged numbers of an evaluation. */
static void expect_eval(const char *group, const char *prefix, json_t *line,
                        long long step)
{
    expect_all(group, eval_keys, line, step);
    expect_classes(prefix, "iou", line, step);
    expect_classes(prefix, "point_iou", line, step);
}

static void check_line(json_t *line)
{
    const char *event = json_string_value(json_object_get(line, "event"));
    const long long step = json_integer_value(json_object_get(line, "step"));

    if (strcmp(event, "step") == 0) {
        n_steps++;
        expect_all("train", train_keys, line, step);
        expect_all("time", time_keys, line, step);
    } else if (strcmp(event, "eval") == 0) {
        n_evals++;
        expect_eval("eval", "", line, step);
        expect_eval("merged", "merged_", json_object_get(line, "merged"), step);
    }
}

static long count(event_kind kind)
{
    long n = 0;

    for (int i = 0; i < events.n; i++)
        n += events.value[i].kind == kind;
    return n;
}

int main(int argc, char **argv)
{
    static char path[4096], text[1 << 20];
    const char *wrong;
    FILE *file;

    if (argc != 2)
        return 2;
    snprintf(path, sizeof path, "%s/tensorboard", argv[1]);
    wrong = events_read(path, &events);
    if (wrong)
        die(wrong, path, -1);
    snprintf(path, sizeof path, "%s/metrics.jsonl", argv[1]);
    file = fopen(path, "r");
    if (!file)
        die("cannot be read", path, -1);
    while (fgets(text, sizeof text, file)) {
        json_t *line = json_loads(text, 0, NULL);

        if (!line)
            die("no JSON", text, -1);
        check_line(line);
        json_decref(line);
    }
    fclose(file);
    if (count(EVENT_SCALAR) != n_expected)
        die("scalars that metrics.jsonl has not", path, -1);
    printf("files=%d starts=%ld steps=%ld evals=%ld scalars=%ld pictures=%ld texts=%ld "
           "torn=%ld\n",
           events.n_files, count(EVENT_START), n_steps, n_evals, n_expected,
           count(EVENT_PICTURE), count(EVENT_TEXT), events.torn);
    events_free(&events);
    return 0;
}
