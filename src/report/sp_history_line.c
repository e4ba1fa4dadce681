/* Lines of metrics.jsonl and evaluations.jsonl, and pictures.json. */
#include <assert.h>
#include <jansson.h>
#include <limits.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "report/sp_history.h"

enum { MOST_CLASSES = 65536 };

double sp_history_number(const json_t *object, const char *key)
{
    const json_t *value = json_object_get(object, key);

    return json_is_number(value) ? json_number_value(value) : NAN;
}

const char *sp_history_text(const json_t *object, const char *key)
{
    const char *value = json_string_value(json_object_get(object, key));

    return value ? value : "";
}

int sp_history_count(const json_t *objects)
{
    return (int)json_array_size(objects);
}

const json_t *sp_history_get(const json_t *objects, int i)
{
    return i < 0 ? NULL : json_array_get(objects, (size_t)i);
}

void sp_history_drop(json_t *objects)
{
    json_decref(objects);
}

double sp_history_sum(const json_t *objects, const char *key)
{
    double sum = 0;

    for (int i = 0; i < sp_history_count(objects); i++) {
        const double one = sp_history_number(sp_history_get(objects, i), key);

        sum += isfinite(one) ? one : 0;
    }
    return sum;
}

static sp_status history_out_of_memory(void)
{
    return SP_FAIL(SP_EMEM, "no memory for the lines of a run");
}

/* ---- steps ---- */

static sp_status history_parse_step(sp_history *history, const json_t *line)
{
#define KEY(name, key) key,
    static const char *const keys[] = {SP_STEP_VALUES(KEY)};
#undef KEY
    sp_history_step *step;

    SP_TRY(sp_history_grow((void **)&history->step, history->n_steps,
                           sizeof *history->step));
    step = &history->step[history->n_steps++];
    for (int i = 0; i < SP_STEP_VALUE_COUNT; i++)
        step->at[i] = sp_history_number(line, keys[i]);
    return SP_OK;
}

/* ---- evaluations ---- */

/* Copies the IoU of each class in the order of the line. */
static sp_status history_parse_iou(const json_t *object, int n, double **iou)
{
    const char *key;
    const json_t *value;
    int i = 0;

    if (!json_is_object(object) || (int)json_object_size(object) != n)
        return SP_OK;
    *iou = malloc(((size_t)n + 1) * sizeof **iou);
    if (!*iou)
        return history_out_of_memory();
    json_object_foreach((json_t *)(uintptr_t)object, key, value)(*iou)[i++] =
        json_is_number(value) ? json_number_value(value) : NAN;
    return SP_OK;
}

static sp_status history_parse_names(const json_t *object, int n, char ***name)
{
    const char *key;
    const json_t *value;
    int i = 0;

    *name = calloc((size_t)n + 1, sizeof **name);
    if (!*name)
        return history_out_of_memory();
    if ((int)json_object_size(object) == n)
        json_object_foreach((json_t *)(uintptr_t)object, key, value)(*name)[i++] =
            strdup(key);
    for (; i < n; i++) {
        /* Two classes of one name are one member of the object. */
        char text_of[24];

        snprintf(text_of, sizeof text_of, "class %d", i);
        (*name)[i] = strdup(text_of);
    }
    for (i = 0; i < n; i++)
        if (!(*name)[i])
            return history_out_of_memory();
    return SP_OK;
}

/* True for n rows of n counts with a sum that is a count too. */
static bool is_square(const json_t *matrix, int n)
{
    int64_t sum = 0;

    if (!json_is_array(matrix) || (int)json_array_size(matrix) != n)
        return false;
    for (size_t i = 0; i < (size_t)n; i++) {
        const json_t *row = json_array_get(matrix, i);

        if (!json_is_array(row) || (int)json_array_size(row) != n)
            return false;
        for (size_t k = 0; k < (size_t)n; k++) {
            const json_t *cell = json_array_get(row, k);

            if (!json_is_integer(cell) || json_integer_value(cell) < 0 ||
                __builtin_add_overflow(sum, json_integer_value(cell), &sum))
                return false;
        }
    }
    return true;
}

static sp_status history_parse_confusion(const json_t *matrix, int n,
                                         int64_t **confusion)
{
    if (!is_square(matrix, n))
        return SP_OK;
    *confusion = malloc(((size_t)n * (size_t)n + 1) * sizeof **confusion);
    if (!*confusion)
        return history_out_of_memory();
    for (int i = 0; i < n; i++)
        for (int k = 0; k < n; k++)
            (*confusion)[i * n + k] = json_integer_value(
                json_array_get(json_array_get(matrix, (size_t)i), (size_t)k));
    return SP_OK;
}

static sp_history_eval history_scores(const json_t *line)
{
    const json_t *merged = json_object_get(line, "merged");

    return (sp_history_eval){
        .step = sp_history_number(line, "step"),
        .epoch = sp_history_number(line, "epoch"),
        .samples = sp_history_number(line, "samples"),
        .loss = sp_history_number(line, "loss"),
        .accuracy = sp_history_number(line, "accuracy"),
        .miou = sp_history_number(line, "miou"),
        .point_accuracy = sp_history_number(line, "point_accuracy"),
        .point_miou = sp_history_number(line, "point_miou"),
        .merged_miou = sp_history_number(merged, "miou"),
        .merged_point_miou = sp_history_number(merged, "point_miou")};
}

/* Copies the scores of data.val_sets. */
static sp_status history_parse_val_sets(sp_history_eval *e, const json_t *sets)
{
    const char *name;
    const json_t *set;

    e->set = calloc(json_object_size(sets) + 1, sizeof *e->set);
    if (!e->set)
        return history_out_of_memory();
    json_object_foreach((json_t *)(uintptr_t)sets, name, set)
    {
        e->set[e->n_sets] = history_scores(set);
        e->set[e->n_sets].name = strdup(name);
        if (!e->set[e->n_sets++].name)
            return history_out_of_memory();
    }
    return SP_OK;
}

static sp_status fill_eval(sp_history_eval *e, const json_t *line, bool is_later)
{
    const json_t *matrix = json_object_get(line, "confusion");
    const json_t *merged = json_object_get(line, "merged");

    *e = history_scores(line);
    e->n_classes = json_is_array(matrix)
                       ? (int)json_array_size(matrix)
                       : (int)json_object_size(json_object_get(line, "iou"));
    SP_TRY(history_parse_names(json_object_get(line, "iou"), e->n_classes,
                               &e->class_name));
    SP_TRY(history_parse_iou(json_object_get(line, "iou"), e->n_classes, &e->iou));
    SP_TRY(history_parse_iou(json_object_get(line, "point_iou"), e->n_classes,
                             &e->point_iou));
    SP_TRY(history_parse_iou(json_object_get(merged, "iou"), e->n_classes,
                             &e->merged_iou));
    SP_TRY(history_parse_iou(json_object_get(merged, "point_iou"), e->n_classes,
                             &e->merged_point_iou));
    SP_TRY(history_parse_confusion(matrix, e->n_classes, &e->confusion));
    SP_TRY(history_parse_confusion(json_object_get(line, "point_confusion"),
                                   e->n_classes, &e->point_confusion));
    SP_TRY(history_parse_val_sets(e, json_object_get(line, "sets")));
    if (!is_later)
        return SP_OK;
    e->time = strdup(sp_history_text(line, "time"));
    e->checkpoint = strdup(sp_history_text(line, "checkpoint"));
    return e->time && e->checkpoint ? SP_OK : history_out_of_memory();
}

static sp_status history_parse_eval(sp_history *history, const json_t *line,
                                    bool is_later, const char **fault)
{
    sp_history_eval **array = is_later ? &history->later : &history->eval;
    int *n = is_later ? &history->n_later : &history->n_evals;
    const json_t *matrix = json_object_get(line, "confusion");

    if (json_array_size(matrix) > MOST_CLASSES ||
        (json_is_array(matrix) && !is_square(matrix, (int)json_array_size(matrix)))) {
        *fault = "its confusion matrix is not square, or holds more than counts";
        return SP_OK;
    }
    SP_TRY(sp_history_grow((void **)array, *n, sizeof **array));
    return fill_eval(&(*array)[(*n)++], line, is_later);
}

/* Keeps an object in a list. */
static sp_status history_keep(json_t **list, json_t *object)
{
    if (!*list)
        *list = json_array();
    return json_array_append(*list, object) == 0 ? SP_OK : history_out_of_memory();
}

static sp_status history_parse_object(sp_history *history, json_t *line, bool is_later,
                                      const char **fault)
{
    const char *event = json_string_value(json_object_get(line, "event"));

    if (!event) {
        *fault = "it has no \"event\"";
        return SP_OK;
    }
    /* The line of an evaluation by `sptrain eval` is in both files. */
    if (strcmp(event, "eval") == 0)
        return !is_later && json_object_get(line, "checkpoint")
                   ? SP_OK
                   : history_parse_eval(history, line, is_later, fault);
    if (strcmp(event, "step") == 0)
        return history_parse_step(history, line);
    if (strcmp(event, "start") == 0 || strcmp(event, "resume") == 0)
        return history_keep(&history->starts, line);
    /* Events of other versions are passed over. */
    return strcmp(event, "end") == 0 ? history_keep(&history->ends, line) : SP_OK;
}

sp_status sp_history_parse_line(sp_history *history, const char *line, size_t n,
                                bool is_later, const char **fault)
{
    json_error_t error;
    json_t *object = json_loadb(line, n, 0, &error);
    sp_status rc = SP_OK;

    assert(history && fault);
    *fault = NULL;
    if (!object)
        *fault = "it is no JSON";
    else if (!json_is_object(object))
        *fault = "it is no JSON object";
    else
        rc = history_parse_object(history, object, is_later, fault);
    json_decref(object);
    return rc;
}

/* ---- pictures ---- */

void sp_history_parse_pictures(sp_history *history, const char *text_of)
{
    json_error_t error;
    json_t *root = json_loads(text_of, 0, &error);

    assert(history && text_of);
    history->samples = json_incref(json_object_get(root, "samples"));
    if (!json_is_array(history->samples))
        sp_history_note(history,
                        "pictures/pictures.json cannot be read and is left out.");
    json_decref(root);
}
