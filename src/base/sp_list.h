/* Lists and other content in memory that grow, and orders for qsort. */
#ifndef SP_LIST_H
#define SP_LIST_H

#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "base/sp_error.h"

/* SP_NEW(to, n, what): *to becomes an array of n zeroed elements of its type, and one
 * more, so that an empty one is no NULL either. `what` names the content in the message.
 * SP_EMEM. */
#define SP_NEW(to, n, what) sp_list_new((to), (size_t)(n), sizeof **(to), (what))
static inline sp_status sp_list_new(void *to, size_t n, size_t size, const char *what)
{
    void *made = calloc(n + 1, size);

    memcpy(to, &made, sizeof made); /* a pointer of any type */
    return made ? SP_OK
                : SP_FAIL(SP_EMEM, "no memory for %s: %zu bytes", what, (n + 1) * size);
}

/* Gives *data, malloc'd or NULL, the size of `bytes` bytes. False: no memory; all is as
 * it was. */
static inline bool sp_list_resize(void *data, size_t bytes)
{
    void *at, *grown;

    memcpy(&at, data, sizeof at);           /* a pointer of any type */
    grown = realloc(at, bytes ? bytes : 1); /* with 0 it may free and give NULL */
    if (grown)
        memcpy(data, &grown, sizeof grown);
    return grown;
}

/* Makes room for element n of the list of n elements at *list, of `size` bytes each,
 * that nothing but this function has allocated: the room of such a list is the next
 * power of two. False: no memory; the list is as it was. */
static inline bool sp_list_grow(void *list, int64_t n, size_t size)
{
    return (n > 0 && (n & (n - 1)) != 0) ||
           sp_list_resize(list, (size_t)(n > 0 ? 2 * n : 1) * size);
}

/* Gives *data, malloc'd or NULL, room for at least `bytes` bytes; *room is its present
 * room. It at least doubles, so that content that grows bit by bit is moved seldom.
 * False: no memory; nothing changed. */
static inline bool sp_list_reserve(void *data, size_t *room, size_t bytes)
{
    const size_t more = bytes > 2 * *room ? bytes : 2 * *room;

    if (bytes <= *room)
        return true;
    if (!sp_list_resize(data, more))
        return false;
    *room = more;
    return true;
}

static inline int sp_by_double(const void *a, const void *b)
{
    const double x = *(const double *)a, y = *(const double *)b;

    return (x > y) - (x < y);
}

static inline int sp_by_int64(const void *a, const void *b)
{
    const int64_t x = *(const int64_t *)a, y = *(const int64_t *)b;

    return (x > y) - (x < y);
}

static inline int sp_by_int64_falling(const void *a, const void *b)
{
    return sp_by_int64(b, a);
}

/* The elements are pointers to texts. */
static inline int sp_by_text(const void *a, const void *b)
{
    return strcmp(*(char *const *)a, *(char *const *)b);
}

#endif
