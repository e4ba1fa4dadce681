#include "report/sp_progress.h"

#include <assert.h>
#include <math.h>
#include <stdarg.h>
#include <stdio.h>

#include "base/sp_log.h"
#include "report/sp_live.h"

void sp_progress_begin(sp_progress *progress, const char *what, const char *unit,
                       int64_t total)
{
    assert(what && unit && total >= 0);
    *progress = (sp_progress){.what = what,
                              .unit = unit,
                              .total = total,
                              .begin_s = sp_now_s(),
                              .drawn_s = -INFINITY};
    sp_progress_at(progress, 0, "%s", "");
}

bool sp_progress_is_due(const sp_progress *progress)
{
    return sp_live_is_shown() && sp_now_s() - progress->drawn_s >= SP_PROGRESS_EVERY_S;
}

/* The seconds that are left if the work continues at its pace so far. */
static double left(const sp_progress *p, int64_t done)
{
    const double past_s = sp_now_s() - p->begin_s;

    return done > 0 && p->total > 0 ? past_s * (double)(p->total - done) / (double)done
                                    : NAN;
}

static void progress_add_counts(sp_live *line, const sp_progress *p, int64_t done)
{
    const double past_s = sp_now_s() - p->begin_s;
    char text[SP_DURATION];

    if (p->total > 0) {
        const double share = (double)done / (double)p->total;

        sp_live_add_bar(line, 4, share);
        sp_live_add(line, 7, "%3.0f %%", 100 * fmin(share, 1));
        sp_live_add(line, 6, "%lld/%lld %s", (long long)done, (long long)p->total,
                    p->unit);
    } else
        sp_live_add(line, 6, "%lld %s", (long long)done, p->unit);
    if (done > 0 && past_s > 0)
        sp_live_add(line, 3, "%.3g/s", (double)done / past_s);
    if (isfinite(left(p, done)))
        sp_live_add(line, 5, "left %s", sp_live_duration(left(p, done), text));
}

void sp_progress_at(sp_progress *progress, int64_t done, const char *format, ...)
{
    char note[SP_LIVE_TEXT];
    va_list args;
    sp_live line;

    assert(done >= 0);
    if (!sp_progress_is_due(progress))
        return;
    va_start(args, format);
    vsnprintf(note, sizeof note, format, args);
    va_end(args);
    progress->drawn_s = sp_now_s();
    sp_live_begin(&line);
    sp_live_add(&line, 8, "%s", progress->what);
    progress_add_counts(&line, progress, done);
    sp_live_add(&line, 2, "%s", note);
    sp_live_draw(&line);
}

void sp_progress_end(sp_progress *progress)
{
    (void)progress;
    if (sp_live_is_shown())
        sp_live_remove();
}

void sp_pace_add(sp_pace *pace, double samples, double seconds)
{
    const double kept = exp(-seconds / SP_PACE_S);

    assert(samples >= 0);
    if (!(seconds >= 0))
        return;
    pace->samples = kept * pace->samples + samples;
    pace->seconds = kept * pace->seconds + seconds;
}

double sp_pace_per_second(const sp_pace *pace)
{
    return pace->seconds > 0 ? pace->samples / pace->seconds : NAN;
}
