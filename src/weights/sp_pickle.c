#include "weights/sp_pickle.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "base/sp_list.h"
#include "base/sp_number.h"

enum { MOST = 1 << 22 }; /* values, cells, entries of the stack and of the memo */

/* ---- values ---- */

static sp_status fail_at(const sp_pickle *p, const char *what)
{
    return SP_FAIL(SP_EDATA, "%s: pickle, byte %zu: %s", p->path, p->at, what);
}

/* Grows one of the lists of the machine. */
static sp_status grow_list(const sp_pickle *p, void *list, int64_t n, size_t size)
{
    if (n >= MOST)
        return fail_at(p, "more than 2^22 values");
    if (!sp_list_grow(list, n, size))
        return SP_FAIL(SP_EMEM, "%s: no memory for its values", p->path);
    return SP_OK;
}

static sp_status make_value(sp_pickle *p, sp_pickle_kind kind, int *made)
{
    SP_TRY(grow_list(p, &p->value, p->n_values, sizeof *p->value));
    p->value[p->n_values] = (sp_pickle_value){.kind = kind,
                                              .first = -1,
                                              .last = -1,
                                              .type = -1,
                                              .storage = -1,
                                              .size = -1,
                                              .stride = -1};
    *made = (int)p->n_values++;
    return SP_OK;
}

static sp_status push_value(sp_pickle *p, int value)
{
    SP_TRY(grow_list(p, &p->stack, p->n_stack, sizeof *p->stack));
    p->stack[p->n_stack++] = value;
    return SP_OK;
}

static sp_status push_new(sp_pickle *p, sp_pickle_kind kind)
{
    int made = -1;

    SP_TRY(make_value(p, kind, &made));
    return push_value(p, made);
}

/* The value on top of the stack, which push_new has just made. */
static sp_pickle_value *top_value(sp_pickle *p)
{
    return &p->value[p->stack[p->n_stack - 1]];
}

static sp_status push_whole(sp_pickle *p, int64_t whole)
{
    SP_TRY(push_new(p, SP_PICKLE_WHOLE));
    top_value(p)->whole = whole;
    return SP_OK;
}

/* The height below which the innermost mark does not let the stack fall. */
static int64_t stack_floor(const sp_pickle *p)
{
    return p->n_marks ? p->mark[p->n_marks - 1] : 0;
}

static sp_status pop_value(sp_pickle *p, int *value)
{
    if (p->n_stack <= stack_floor(p))
        return fail_at(p, "the stack is empty");
    *value = p->stack[--p->n_stack];
    return SP_OK;
}

static sp_status pop_mark(sp_pickle *p, int64_t *height)
{
    if (p->n_marks == 0)
        return fail_at(p, "no mark");
    *height = p->mark[--p->n_marks];
    return SP_OK;
}

static sp_status append_cell(sp_pickle *p, int to, int key, int value)
{
    sp_pickle_value *list = &p->value[to];
    const int made = (int)p->n_cells;

    SP_TRY(grow_list(p, &p->cell, p->n_cells, sizeof *p->cell));
    p->cell[p->n_cells++] = (sp_pickle_cell){key, value, -1};
    if (list->last >= 0)
        p->cell[list->last].next = made;
    else
        list->first = made;
    list->last = made;
    list->count++;
    return SP_OK;
}

int sp_pickle_element(const sp_pickle *p, int list, int i)
{
    int cell;

    if (list < 0 || p->value[list].kind != SP_PICKLE_LIST)
        return -1;
    for (cell = p->value[list].first; cell >= 0 && i > 0; i--)
        cell = p->cell[cell].next;
    return cell >= 0 ? p->cell[cell].value : -1;
}

bool sp_pickle_is(sp_pickle_text text, const char *word)
{
    return text.n == strlen(word) && memcmp(text.at, word, text.n) == 0;
}

/* ---- bytes ---- */

static sp_status pickle_read_bytes(sp_pickle *p, uint64_t n, const unsigned char **at)
{
    if (n > p->n_bytes - p->at)
        return fail_at(p, "it ends too early");
    *at = p->bytes + p->at;
    p->at += n;
    return SP_OK;
}

/* A length of 1, 2, 4 or 8 bytes, the lowest first. */
static sp_status pickle_read_length(sp_pickle *p, int width, uint64_t *length)
{
    const unsigned char *at = NULL;

    SP_TRY(pickle_read_bytes(p, (uint64_t)width, &at));
    *length = width == 1   ? at[0]
              : width == 2 ? sp_get16(at)
              : width == 4 ? sp_get32(at)
                           : sp_get64(at);
    return SP_OK;
}

static sp_status push_text(sp_pickle *p, int width)
{
    const unsigned char *at = NULL;
    uint64_t n = 0;

    SP_TRY(pickle_read_length(p, width, &n));
    SP_TRY(pickle_read_bytes(p, n, &at));
    SP_TRY(push_new(p, SP_PICKLE_TEXT));
    top_value(p)->text = (sp_pickle_text){(const char *)at, (size_t)n};
    return SP_OK;
}

/* A signed number of any length; one of more than 8 bytes is opaque. */
static sp_status push_long(sp_pickle *p, int width)
{
    const unsigned char *at = NULL;
    uint64_t n = 0, bits;

    SP_TRY(pickle_read_length(p, width, &n));
    SP_TRY(pickle_read_bytes(p, n, &at));
    if (n > 8)
        return push_new(p, SP_PICKLE_OPAQUE);
    bits = n > 0 && at[n - 1] & 0x80 ? ~(uint64_t)0 : 0;
    for (uint64_t i = n; i-- > 0;)
        bits = bits << 8 | at[i];
    return push_whole(p, (int64_t)bits);
}

static sp_status pickle_read_line(sp_pickle *p, sp_pickle_text *line)
{
    const unsigned char *from = p->bytes + p->at;
    const unsigned char *end = memchr(from, '\n', p->n_bytes - p->at);

    if (!end)
        return fail_at(p, "it ends too early");
    *line = (sp_pickle_text){(const char *)from, (size_t)(end - from)};
    p->at += line->n + 1;
    return SP_OK;
}

/* ---- containers ---- */

/* Moves the values above the last mark into a list. */
static sp_status push_list_of_mark(sp_pickle *p, sp_pickle_kind kind)
{
    int64_t from = 0;
    int made = -1;

    SP_TRY(pop_mark(p, &from));
    SP_TRY(make_value(p, kind, &made));
    for (int64_t i = from; i < p->n_stack; i++)
        SP_TRY(append_cell(p, made, -1, p->stack[i]));
    p->n_stack = from;
    return push_value(p, made);
}

static sp_status push_tuple(sp_pickle *p, int n)
{
    int made = -1, value[3] = {-1, -1, -1};

    for (int i = n; i-- > 0;)
        SP_TRY(pop_value(p, &value[i]));
    SP_TRY(make_value(p, SP_PICKLE_LIST, &made));
    for (int i = 0; i < n; i++)
        SP_TRY(append_cell(p, made, -1, value[i]));
    return push_value(p, made);
}

/* Adds the values above the last mark to the container below it. A value that is
 * neither a list nor a dict stays opaque. */
static sp_status add_of_mark(sp_pickle *p, bool is_pairs)
{
    int64_t from = 0;
    int to;

    SP_TRY(pop_mark(p, &from));
    if (from <= stack_floor(p))
        return fail_at(p, "nothing to add to");
    if (is_pairs && (p->n_stack - from) % 2 != 0)
        return fail_at(p, "a key without a value");
    to = p->stack[from - 1];
    for (int64_t i = from; i < p->n_stack; i += 1 + is_pairs) {
        if (is_pairs && p->value[to].kind == SP_PICKLE_DICT)
            SP_TRY(append_cell(p, to, p->stack[i], p->stack[i + 1]));
        else if (!is_pairs && p->value[to].kind == SP_PICKLE_LIST)
            SP_TRY(append_cell(p, to, -1, p->stack[i]));
    }
    p->n_stack = from;
    return SP_OK;
}

static sp_status push_dict_of_mark(sp_pickle *p)
{
    int64_t from = 0;
    int made = -1;

    SP_TRY(pop_mark(p, &from));
    if ((p->n_stack - from) % 2 != 0)
        return fail_at(p, "a key without a value");
    SP_TRY(make_value(p, SP_PICKLE_DICT, &made));
    for (int64_t i = from; i < p->n_stack; i += 2)
        SP_TRY(append_cell(p, made, p->stack[i], p->stack[i + 1]));
    p->n_stack = from;
    return push_value(p, made);
}

static sp_status add_one(sp_pickle *p, bool is_pair)
{
    int key = -1, value = -1, to = -1;

    SP_TRY(pop_value(p, &value));
    if (is_pair)
        SP_TRY(pop_value(p, &key));
    SP_TRY(pop_value(p, &to));
    if (p->value[to].kind == (is_pair ? SP_PICKLE_DICT : SP_PICKLE_LIST))
        SP_TRY(append_cell(p, to, key, value));
    return push_value(p, to);
}

/* ---- names and calls ---- */

static sp_status push_global(sp_pickle *p, sp_pickle_text module, sp_pickle_text name)
{
    SP_TRY(push_new(p, SP_PICKLE_GLOBAL));
    top_value(p)->module = module;
    top_value(p)->text = name;
    return SP_OK;
}

static sp_status push_global_lines(sp_pickle *p)
{
    sp_pickle_text module = {NULL, 0}, name = {NULL, 0};

    SP_TRY(pickle_read_line(p, &module));
    SP_TRY(pickle_read_line(p, &name));
    return push_global(p, module, name);
}

static sp_status push_global_stack(sp_pickle *p)
{
    int name = -1, module = -1;

    SP_TRY(pop_value(p, &name));
    SP_TRY(pop_value(p, &module));
    if (p->value[name].kind != SP_PICKLE_TEXT ||
        p->value[module].kind != SP_PICKLE_TEXT)
        return fail_at(p, "the name of a global is no text");
    return push_global(p, p->value[module].text, p->value[name].text);
}

static bool is_global(const sp_pickle *p, int value, const char *module,
                      const char *name)
{
    const sp_pickle_value *v = &p->value[value];

    return v->kind == SP_PICKLE_GLOBAL && sp_pickle_is(v->module, module) &&
           sp_pickle_is(v->text, name);
}

/* A tensor of its arguments: storage, offset, size, stride, and in version 3 the type
 * as number 6. Arguments that are no tensor's make an opaque value. */
static sp_status push_tensor(sp_pickle *p, int args, bool has_type)
{
    const int storage = sp_pickle_element(p, args, 0);
    const int offset = sp_pickle_element(p, args, 1);
    const int size = sp_pickle_element(p, args, 2);
    const int stride = sp_pickle_element(p, args, 3);
    sp_pickle_value *v;

    if (storage < 0 || p->value[storage].kind != SP_PICKLE_STORAGE || offset < 0 ||
        p->value[offset].kind != SP_PICKLE_WHOLE || size < 0 || stride < 0)
        return push_new(p, SP_PICKLE_OPAQUE);
    SP_TRY(push_new(p, SP_PICKLE_TENSOR));
    v = top_value(p);
    v->storage = storage;
    v->whole = p->value[offset].whole;
    v->size = size;
    v->stride = stride;
    v->type = has_type ? sp_pickle_element(p, args, 6) : -1;
    return SP_OK;
}

/* A dict, from a list of pairs if there is one. */
static sp_status push_ordered(sp_pickle *p, int args)
{
    const int pairs = sp_pickle_element(p, args, 0);
    int made = -1;

    SP_TRY(make_value(p, SP_PICKLE_DICT, &made));
    if (pairs >= 0 && p->value[pairs].kind == SP_PICKLE_LIST)
        for (int c = p->value[pairs].first; c >= 0; c = p->cell[c].next) {
            const int key = sp_pickle_element(p, p->cell[c].value, 0);
            const int value = sp_pickle_element(p, p->cell[c].value, 1);

            if (key >= 0 && value >= 0)
                SP_TRY(append_cell(p, made, key, value));
        }
    return push_value(p, made);
}

/* A call: the function and the tuple of its arguments are on the stack. */
static sp_status push_call(sp_pickle *p)
{
    int function = -1, args = -1, first;

    SP_TRY(pop_value(p, &args));
    SP_TRY(pop_value(p, &function));
    if (is_global(p, function, "collections", "OrderedDict"))
        return push_ordered(p, args);
    if (is_global(p, function, "torch._utils", "_rebuild_tensor_v2") ||
        is_global(p, function, "torch._utils", "_rebuild_tensor"))
        return push_tensor(p, args, false);
    if (is_global(p, function, "torch._utils", "_rebuild_tensor_v3"))
        return push_tensor(p, args, true);
    first = sp_pickle_element(p, args, 0);
    if (first >= 0 &&
        (is_global(p, function, "torch._utils", "_rebuild_parameter") ||
         is_global(p, function, "torch._utils", "_rebuild_parameter_with_state")))
        return push_value(p, first);
    return push_new(p, SP_PICKLE_OPAQUE);
}

/* The state of an opaque object (a module that was saved whole) is kept, if it is a
 * dict: it contains its parameters. */
static sp_status build_object(sp_pickle *p)
{
    int state = -1;

    SP_TRY(pop_value(p, &state));
    if (p->n_stack <= stack_floor(p))
        return fail_at(p, "the stack is empty");
    if (top_value(p)->kind == SP_PICKLE_OPAQUE &&
        p->value[state].kind == SP_PICKLE_DICT)
        top_value(p)->type = state;
    return SP_OK;
}

static sp_status push_persistent(sp_pickle *p)
{
    int id = -1, word, type, key, count;
    sp_pickle_value *v;

    SP_TRY(pop_value(p, &id));
    word = sp_pickle_element(p, id, 0);
    type = sp_pickle_element(p, id, 1);
    key = sp_pickle_element(p, id, 2);
    count = sp_pickle_element(p, id, 4);
    if (word < 0 || p->value[word].kind != SP_PICKLE_TEXT ||
        !sp_pickle_is(p->value[word].text, "storage") || type < 0 || key < 0 ||
        p->value[key].kind != SP_PICKLE_TEXT || count < 0 ||
        p->value[count].kind != SP_PICKLE_WHOLE)
        return push_new(p, SP_PICKLE_OPAQUE);
    SP_TRY(push_new(p, SP_PICKLE_STORAGE));
    v = top_value(p);
    v->type = type;
    v->text = p->value[key].text;
    v->whole = p->value[count].whole;
    return SP_OK;
}

/* ---- memo ---- */

static sp_status put_memo(sp_pickle *p, uint64_t place)
{
    if (p->n_stack <= stack_floor(p))
        return fail_at(p, "the stack is empty");
    if (place >= MOST)
        return fail_at(p, "a memo of more than 2^22 entries");
    while ((uint64_t)p->n_memo <= place) {
        SP_TRY(grow_list(p, &p->memo, p->n_memo, sizeof *p->memo));
        p->memo[p->n_memo++] = -1;
    }
    p->memo[place] = p->stack[p->n_stack - 1];
    return SP_OK;
}

static sp_status get_memo(sp_pickle *p, uint64_t place)
{
    if (place >= (uint64_t)p->n_memo || p->memo[place] < 0)
        return fail_at(p, "no such memo entry");
    return push_value(p, p->memo[place]);
}

static sp_status use_memo(sp_pickle *p, int width,
                          sp_status (*use)(sp_pickle *p, uint64_t place))
{
    uint64_t place = 0;

    SP_TRY(pickle_read_length(p, width, &place));
    return use(p, place);
}

/* ---- opcodes ---- */

static sp_status skip_bytes(sp_pickle *p, int n)
{
    const unsigned char *at = NULL;

    return pickle_read_bytes(p, (uint64_t)n, &at);
}

/* A float describes no tensor. */
static sp_status push_float(sp_pickle *p)
{
    SP_TRY(skip_bytes(p, 8));
    return push_new(p, SP_PICKLE_OPAQUE);
}

static sp_status push_small(sp_pickle *p, int width)
{
    uint64_t n = 0;

    SP_TRY(pickle_read_length(p, width, &n));
    return push_whole(p, width == 4 ? (int32_t)(uint32_t)n : (int64_t)n);
}

static sp_status push_mark(sp_pickle *p)
{
    SP_TRY(grow_list(p, &p->mark, p->n_marks, sizeof *p->mark));
    p->mark[p->n_marks++] = p->n_stack;
    return SP_OK;
}

static sp_status drop_to_mark(sp_pickle *p, bool pushes_opaque)
{
    int64_t from = 0;

    SP_TRY(pop_mark(p, &from));
    p->n_stack = from;
    return pushes_opaque ? push_new(p, SP_PICKLE_OPAQUE) : SP_OK;
}

static sp_status drop_one(sp_pickle *p)
{
    int value = -1;

    if (p->n_marks && p->n_stack == stack_floor(p)) {
        p->n_marks--;
        return SP_OK;
    }
    return pop_value(p, &value);
}

static sp_status push_again(sp_pickle *p)
{
    if (p->n_stack <= stack_floor(p))
        return fail_at(p, "the stack is empty");
    return push_value(p, p->stack[p->n_stack - 1]);
}

/* NEWOBJ_EX has keyword arguments too, which describe no tensor. */
static sp_status push_call_with_words(sp_pickle *p)
{
    int words = -1;

    SP_TRY(pop_value(p, &words));
    return push_call(p);
}

/* clang-format off */
static sp_status run_container(sp_pickle *p, int op, bool *is_known)
{
    switch (op) {
    case '(': return push_mark(p);
    case ')': case ']': case 0x8f: return push_new(p, SP_PICKLE_LIST);
    case '}': return push_new(p, SP_PICKLE_DICT);
    case 't': case 'l': case 0x91: return push_list_of_mark(p, SP_PICKLE_LIST);
    case 'd': return push_dict_of_mark(p);
    case 0x85: case 0x86: case 0x87: return push_tuple(p, op - 0x84);
    case 'a': return add_one(p, false);
    case 's': return add_one(p, true);
    case 'e': case 0x90: return add_of_mark(p, false);
    case 'u': return add_of_mark(p, true);
    case 'h': return use_memo(p, 1, get_memo);
    case 'j': return use_memo(p, 4, get_memo);
    case 'q': return use_memo(p, 1, put_memo);
    case 'r': return use_memo(p, 4, put_memo);
    case 0x94: return put_memo(p, (uint64_t)p->n_memo);
    case '0': return drop_one(p);
    case '1': return drop_to_mark(p, false);
    case '2': return push_again(p);
    default: *is_known = false; return SP_OK;
    }
}

static sp_status run_atom(sp_pickle *p, int op, bool *is_known)
{
    *is_known = true;
    switch (op) {
    case 'N': return push_new(p, SP_PICKLE_NONE);
    case 0x88: case 0x89: return push_whole(p, op == 0x88);
    case 'J': return push_small(p, 4);
    case 'K': return push_small(p, 1);
    case 'M': return push_small(p, 2);
    case 0x8a: return push_long(p, 1);
    case 0x8b: return push_long(p, 4);
    case 'G': return push_float(p);
    case 'X': case 'T': case 'B': return push_text(p, 4);
    case 0x8c: case 'U': case 'C': return push_text(p, 1);
    case 0x8d: case 0x8e: case 0x96: return push_text(p, 8);
    case 'c': return push_global_lines(p);
    case 0x93: return push_global_stack(p);
    case 'R': case 0x81: return push_call(p);
    case 0x92: return push_call_with_words(p);
    case 'b': return build_object(p);
    case 'o': return drop_to_mark(p, true);
    case 'Q': return push_persistent(p);
    case 0x80: return skip_bytes(p, 1);
    case 0x95: return skip_bytes(p, 8);
    default: return run_container(p, op, is_known);
    }
}
/* clang-format on */

sp_status sp_pickle_run(sp_pickle *p, size_t at, size_t *end)
{
    assert(p->path && p->bytes && at <= p->n_bytes);
    p->at = at;
    p->n_stack = p->n_marks = p->n_memo = 0;
    for (;;) {
        const unsigned char *op = NULL;
        bool is_known = true;

        SP_TRY(pickle_read_bytes(p, 1, &op));
        if (*op == '.')
            break;
        SP_TRY(run_atom(p, *op, &is_known));
        if (!is_known)
            return SP_FAIL(
                SP_EDATA, "%s: pickle, byte %zu: opcode %#x is not in protocols 2 to 5",
                p->path, p->at - 1, *op);
    }
    SP_TRY(pop_value(p, &p->root));
    *end = p->at;
    return SP_OK;
}

void sp_pickle_destroy(sp_pickle *p)
{
    free(p->value);
    free(p->cell);
    free(p->stack);
    free(p->memo);
    free(p->mark);
    memset(p, 0, sizeof *p);
}
