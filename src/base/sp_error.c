#include "base/sp_error.h"

#include <assert.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

static _Thread_local sp_error_record record;

/* Shortens a path of any build folder to the part from the source's top folder on, such
 * as "src/data/sp_shard.c". */
static const char *short_file(const char *file)
{
    static const char *const top[] = {"src/", "cuda/", "tests/"};
    const char *found = NULL;

    for (const char *at = file; *at; at++)
        for (size_t i = 0; i < sizeof top / sizeof top[0]; i++)
            if ((at == file || at[-1] == '/') && !strncmp(at, top[i], strlen(top[i])))
                found = at;
    return found ? found : file;
}

sp_status sp_error_set(sp_status code, const char *file, int line, const char *func,
                       const char *format, ...)
{
    va_list args;
    char text[SP_ERROR_MESSAGE];

    assert(code != SP_OK);
    assert(file && func && format);
    /* The message is formed in a copy, since an argument may be the old message itself.
     */
    va_start(args, format);
    vsnprintf(text, sizeof text, format, args);
    va_end(args);
    record.code = code;
    record.is_internal = false;
    memcpy(record.message, text, sizeof text);
    snprintf(record.trace, sizeof record.trace, "%s:%d %s", short_file(file), line,
             func);
    return code;
}

sp_status sp_error_pass(sp_status code, const char *file, int line, const char *func)
{
    size_t used = strlen(record.trace);

    assert(code != SP_OK);
    /* Nobody has left a message with this status: the position is all there is. */
    if (record.code != code)
        return sp_error_internal(
            sp_error_set(code, file, line, func, "%s", sp_status_text(code)));
    snprintf(record.trace + used, sizeof record.trace - used, " < %s:%d %s",
             short_file(file), line, func);
    return code;
}

sp_status sp_error_internal(sp_status code)
{
    assert(code != SP_OK && record.code == code);
    record.is_internal = true;
    return code;
}

const sp_error_record *sp_error_last(void)
{
    return &record;
}

void sp_error_save(sp_error_record *to)
{
    *to = record;
}

sp_status sp_error_raise(const sp_error_record *from)
{
    assert(from && from->code != SP_OK);
    record = *from;
    return record.code;
}

#define SP_STATUS_NAME(name, value, text)                                              \
    case name:                                                                         \
        return #name;
#define SP_STATUS_TEXT(name, value, text)                                              \
    case name:                                                                         \
        return text;

const char *sp_status_name(sp_status code)
{
    switch (code) {
        SP_STATUS_LIST(SP_STATUS_NAME)
    }
    return "unknown status";
}

const char *sp_status_text(sp_status code)
{
    switch (code) {
        SP_STATUS_LIST(SP_STATUS_TEXT)
    }
    return "unknown status";
}
