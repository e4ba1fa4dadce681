/* Status codes and the one error record of a thread.
 *
 *     the function that fails  SP_FAIL  code, message, position --> record of a thread
 *     each of its callers      SP_TRY   adds its own position   -->     |
 *     the end of the thread    sp_error_save, into a slot of a ring <---+
 *     the thread that waits    sp_error_raise  --> record of this thread
 *     main                     sp_log_error    --> standard error
 *
 * A function that can fail returns sp_status. The place that knows most writes the
 * message with SP_FAIL; callers return it with SP_TRY, which records their position.
 * The record is thread-local, so a thread that ends with an error copies it out
 * (sp_error_save), and the thread that reports the error makes it its own
 * (sp_error_raise).
 *
 * The other modules of this folder need only each other and the system: console output
 * (sp_log.h), files (sp_file.h), JSON lines (sp_json.h), printable text (sp_text.h),
 * random numbers (sp_rng.h), exact sums (sp_exact.h), checksums (sp_crc.h), lists that
 * grow (sp_list.h), the limits of the machine (sp_machine.h).
 */
#ifndef SP_ERROR_H
#define SP_ERROR_H

#include <stdbool.h>

#include "base/sp_scope.h"

#ifdef __cplusplus
extern "C" {
#endif

/* X(name, exit status, text). The exit status is the value of the code. */
#define SP_STATUS_LIST(X)                                                              \
    X(SP_OK, 0, "finished")                                                            \
    X(SP_EBELOW, 1, "a result is below the bound that was asked for")                  \
    X(SP_EUSAGE, 2, "usage or deck")                                                   \
    X(SP_EDATA, 3, "input data")                                                       \
    X(SP_EIO, 4, "file system")                                                        \
    X(SP_EMEM, 5, "memory")                                                            \
    X(SP_EMPI, 6, "a peer rank or the transport was lost")                             \
    X(SP_EDEVICE, 7, "device")                                                         \
    X(SP_ENUMERIC, 8, "numbers")                                                       \
    X(SP_ELIMIT, 75, "stopped on request, checkpoint written")

#define SP_STATUS_ENUM(name, value, text) name = value,
typedef enum sp_status { SP_STATUS_LIST(SP_STATUS_ENUM) } sp_status;
#undef SP_STATUS_ENUM

enum { SP_ERROR_MESSAGE = 1024, SP_ERROR_TRACE = 512 };

/* The record of one error: code, message (a line, or several) and trace. */
typedef struct sp_error_record {
    sp_status code;
    char message[SP_ERROR_MESSAGE];
    char trace[SP_ERROR_TRACE]; /* "FILE:1 f < FILE:2 g", innermost first */
    bool is_internal; /* the program is at fault: no input, machine or peer is */
} sp_error_record;

/* The ending of a noun after the number n, in messages. */
static inline const char *sp_plural(double n)
{
    return n == 1 ? "" : "s";
}

/* Writes the record of this thread (code, message in the manner of printf, this
 * position) and has the value `code`. */
#define SP_FAIL(code, ...)                                                             \
    sp_error_set((code), __FILE__, __LINE__, __func__, __VA_ARGS__)

/* The same for errors of the program itself, if an assert will not do because it would
 * end one rank and leave the others waiting. The message is printed as an internal
 * error, with the code and the positions. */
#define SP_FAIL_INTERNAL(code, ...) sp_error_internal(SP_FAIL(code, __VA_ARGS__))

/* Returns from the calling function if expr fails, adding the position to the trace. */
#define SP_TRY(expr)                                                                   \
    do {                                                                               \
        sp_status sp_try_ = (expr);                                                    \
        if (sp_try_ != SP_OK)                                                          \
            return sp_error_pass(sp_try_, __FILE__, __LINE__, __func__);               \
    } while (0)

/* The functions that SP_FAIL, SP_TRY and SP_FAIL_INTERNAL call. All return `code`. */
sp_status sp_error_set(sp_status code, const char *file, int line, const char *func,
                       const char *format, ...)
    __attribute__((format(printf, 5, 6), cold));
sp_status sp_error_pass(sp_status code, const char *file, int line, const char *func)
    __attribute__((cold));
sp_status sp_error_internal(sp_status code) __attribute__((cold));

/* The record of this thread; valid until the next error in this thread. */
const sp_error_record *sp_error_last(void);
/* sp_error_save copies this thread's record out. sp_error_raise makes `from` the record
 * of this thread and returns its code. */
void sp_error_save(sp_error_record *to);
sp_status sp_error_raise(const sp_error_record *from);

/* The name of a code, such as "SP_EDATA", and its text, such as "input data". */
const char *sp_status_name(sp_status code);
const char *sp_status_text(sp_status code);

#ifdef __cplusplus
}
#endif
#endif
