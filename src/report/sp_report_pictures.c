/* The pictures of a page: samples of data.val that eval or training have chosen. */
#include <limits.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "base/sp_file.h"
#include "report/sp_canvas.h"
#include "report/sp_report.h"
#include "report/sp_report_internal.h"

enum { MOST_SAMPLES = 16, MOST_CLASSES = 64 };

/* Returns the bytes in base64; malloc'd, NULL without memory. */
static char *pictures_base64(const char *bytes, size_t n)
{
    static const char digit[] =
        "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    const uint8_t *from = (const uint8_t *)bytes;
    char *text = malloc(4 * (n / 3 + 1) + 1), *to = text;

    for (size_t i = 0; text && i < n; i += 3) {
        const size_t left = n - i;
        const uint32_t three = (uint32_t)from[i] << 16 |
                               (left > 1 ? (uint32_t)from[i + 1] << 8 : 0) |
                               (left > 2 ? (uint32_t)from[i + 2] : 0);

        *to++ = digit[three >> 18];
        *to++ = digit[three >> 12 & 63];
        *to++ = left > 1 ? digit[three >> 6 & 63] : '=';
        *to++ = left > 2 ? digit[three & 63] : '=';
    }
    if (text)
        *to = '\0';
    return text;
}

/* Embeds one picture; *left: bytes that may still be used. */
static void pictures_add(const sp_report *report, const char *dir, json_t *to,
                         const char *which, const char *kind, const char *side,
                         size_t *left)
{
    static const char magic[8] = {'\x89', 'P', 'N', 'G', '\r', '\n', '\x1a', '\n'};
    char path[PATH_MAX], *bytes = NULL, *text = NULL;
    const char *fault = NULL;
    size_t n = 0;

    snprintf(path, sizeof path, "%s/pictures/%s-%s-%s.png", dir, which, kind, side);
    if (sp_file_read(path, &bytes, &n) != SP_OK || n < sizeof magic ||
        memcmp(bytes, magic, sizeof magic) != 0)
        fault = "this picture cannot be read";
    else if (n > *left)
        fault = "left out, since the page would grow too large; it is in the folder "
                "pictures";
    else {
        *left -= n;
        text = pictures_base64(bytes, n);
        report->page->is_short = report->page->is_short || !text;
    }
    sp_page_put(report->page, sp_page_add(report->page, to, "picture", NULL),
                "kind %s side %s oblique %s which %s fault %s base64 %s", kind, side,
                strcmp(side, "top") == 0 ? "" : "oblique", which, fault, text);
    free(text);
    free(bytes);
}

static void pictures_add_colour(const sp_report *report, json_t *to, sp_colour c,
                                const char *name)
{
    char rgb[8];

    snprintf(rgb, sizeof rgb, "#%02x%02x%02x", c.r, c.g, c.b);
    sp_page_put(report->page, sp_page_add(report->page, to, "legend", NULL),
                "rgb %s name %s", rgb, name);
}

static void pictures_add_sample(const sp_report *report, const char *dir, json_t *to,
                                const json_t *sample, size_t *left)
{
    static const char *const kinds[] = {"truth", "prediction", "error"};
    static const char *const sides[] = {"top", "oblique"};
    const char *which = sp_history_text(sample, "which");
    json_t *at;

    /* The name becomes part of a path. */
    if (strcmp(which, "best") != 0 && strcmp(which, "median") != 0 &&
        strcmp(which, "worst") != 0)
        return;
    at = sp_page_add(report->page, to, "sample", NULL);
    sp_page_put(report->page, at, "which %s miou %f name %s voxels %f step %f", which,
                sp_history_number(sample, "miou"), sp_history_text(sample, "name"),
                sp_history_number(sample, "voxels"), sp_history_number(sample, "step"));
    for (int side = 0; side < 2; side++) {
        json_t *row = sp_page_add(report->page, at, "side", NULL);

        for (int kind = 0; kind < 3; kind++)
            pictures_add(report, dir, row, which, kinds[kind], sides[side], left);
    }
}

void sp_report_add_pictures(const sp_report *report)
{
    size_t left = SP_REPORT_PICTURES;

    for (int run = 0; run < report->n; run++) {
        const sp_history *s = &report->history[run];
        const sp_history_eval *e = sp_history_last(s);
        json_t *at;

        if (sp_history_count(s->samples) == 0)
            continue;
        at = sp_report_add(report, "pictures", run);
        for (int c = 0; e && c < e->n_classes && c < MOST_CLASSES; c++)
            pictures_add_colour(report, at, sp_palette_class(c), e->class_name[c]);
        pictures_add_colour(report, at, sp_palette_ignored, "without a class");
        pictures_add_colour(report, at, sp_palette_right, "right");
        pictures_add_colour(report, at, sp_palette_wrong, "wrong");
        for (int i = 0; i < sp_history_count(s->samples) && i < MOST_SAMPLES; i++)
            pictures_add_sample(report, s->dir, at, sp_history_get(s->samples, i),
                                &left);
    }
}
