#include "base/sp_log.h"

#include <assert.h>
#include <stdarg.h>
#include <stdio.h>

enum { MESSAGE = 4096 };

static sp_log_console *console; /* NULL: this process is not one of our programs */
static _Thread_local const sp_log_route *route; /* NULL: to the console */

void sp_log_to_console(sp_log_console *to)
{
    console = to;
}

const sp_log_route *sp_log_set_route(const sp_log_route *to)
{
    const sp_log_route *before = route;

    route = to;
    return before;
}

const sp_log_route *sp_log_current_route(void)
{
    return route;
}

static void log_line(sp_log_kind kind, const char *format, va_list args)
{
    const bool is_of_rank_0 = kind != SP_LOG_WARN;
    char line[MESSAGE];

    if (route ? !route->line || (is_of_rank_0 && route->rank != 0) : !console)
        return;
    vsnprintf(line, sizeof line, format, args);
    if (route)
        route->line(route->arg, kind, line);
    else
        console(kind, line);
}

void sp_log_info(const char *format, ...)
{
    va_list args;

    va_start(args, format);
    log_line(SP_LOG_INFO, format, args);
    va_end(args);
}

void sp_log_progress(const char *format, ...)
{
    va_list args;

    va_start(args, format);
    log_line(SP_LOG_PROGRESS, format, args);
    va_end(args);
}

void sp_log_warn(const char *format, ...)
{
    va_list args;

    va_start(args, format);
    log_line(SP_LOG_WARN, format, args);
    va_end(args);
}

void sp_log_warn0(const char *format, ...)
{
    va_list args;

    va_start(args, format);
    log_line(SP_LOG_WARN0, format, args);
    va_end(args);
}

double sp_clock_s(clockid_t clock)
{
    struct timespec now;

    clock_gettime(clock, &now);
    return (double)now.tv_sec + 1e-9 * (double)now.tv_nsec;
}

double sp_now_s(void)
{
    return sp_clock_s(CLOCK_MONOTONIC);
}

void sp_sleep_s(double s)
{
    const struct timespec nap = {(time_t)s, (long)(1e9 * (s - (double)(time_t)s))};

    nanosleep(&nap, NULL);
}

double sp_time_s(void)
{
    return sp_clock_s(CLOCK_REALTIME);
}

const char *sp_date(double time_s, char text[SP_DATE])
{
    const time_t whole = (time_t)time_s;
    struct tm utc;

    text[0] = 0;
    if (gmtime_r(&whole, &utc))
        strftime(text, SP_DATE, "%Y-%m-%dT%H:%M:%SZ", &utc);
    return text;
}
