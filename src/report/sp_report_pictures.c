/* The pictures of a page: samples of data.val that eval or training have chosen. */
#include <assert.h>
#include <limits.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/sp_file.h"
#include "report/sp_canvas.h"
#include "report/sp_report.h"
#include "report/sp_report_internal.h"

enum { MOST_SAMPLES = 16 };

static const char *const kinds[] = {"truth", "prediction", "error"};
static const char *const sides[] = {"top", "oblique"};

/* Is the name one of those that pictures.json may have? It becomes part of a path. */
static bool is_known(const char *which)
{
    return strcmp(which, "best") == 0 || strcmp(which, "median") == 0 ||
           strcmp(which, "worst") == 0;
}

/* Embeds one picture; *left: bytes that may still be used. */
static void report_add_picture(const sp_report *report, const sp_history *s,
                               const char *which, const char *kind, const char *side,
                               size_t *left)
{
    static const char magic[8] = {'\x89', 'P', 'N', 'G', '\r', '\n', '\x1a', '\n'};
    char path[PATH_MAX], *bytes = NULL;
    size_t n = 0;

    snprintf(path, sizeof path, "%s/pictures/%s-%s-%s.png", s->dir, which, kind, side);
    sp_html_add(report->html, "<figure><figcaption>%s%s</figcaption>", kind,
                strcmp(side, "top") == 0 ? "" : ", oblique");
    if (sp_file_read(path, &bytes, &n) != SP_OK || n < sizeof magic ||
        memcmp(bytes, magic, sizeof magic) != 0)
        sp_html_raw(report->html, "<p class=\"soft\">this picture cannot be read</p>");
    else if (n > *left)
        sp_html_raw(
            report->html,
            "<p class=\"soft\">left out, since the page would grow too large; it "
            "is in the folder pictures</p>");
    else {
        *left -= n;
        sp_html_add(report->html,
                    "<img alt=\"%s of the %s sample, %s view\" "
                    "src=\"data:image/png;base64,",
                    kind, which, side);
        sp_html_base64(report->html, bytes, n);
        sp_html_raw(report->html, "\">");
    }
    sp_html_raw(report->html, "</figure>\n");
    free(bytes);
}

static void add_swatch(const sp_report *report, sp_colour c, const char *name)
{
    sp_html_add(report->html,
                "<li><i class=\"dot\" style=\"background:#%02x%02x%02x\"></i>%s</li>",
                c.r, c.g, c.b, name);
}

static void report_pictures_add_legend(const sp_report *report, const sp_history *s)
{
    const sp_history_eval *e = sp_history_last(s);

    sp_html_raw(report->html, "<ul class=\"keys\">");
    for (int c = 0; e && c < e->n_classes && c < 64; c++)
        add_swatch(report, sp_palette_class(c), e->class_name[c]);
    add_swatch(report, sp_palette_ignored, "without a class");
    add_swatch(report, sp_palette_right, "right");
    add_swatch(report, sp_palette_wrong, "wrong");
    sp_html_raw(report->html, "</ul>\n");
}

static void report_add_sample(const sp_report *report, const sp_history *s,
                              const struct json_t *sample, size_t *left)
{
    const char *which = sp_history_text(sample, "which");

    if (!is_known(which))
        return;

    sp_html_add(
        report->html,
        "<section class=\"sample\"><h3>The %s sample: mean IoU %.4f <small>%s, %g "
        "voxels, step %g</small></h3>\n",
        which, sp_history_number(sample, "miou"), sp_history_text(sample, "name"),
        sp_history_number(sample, "voxels"), sp_history_number(sample, "step"));
    for (size_t side = 0; side < 2; side++) {
        sp_html_raw(report->html, "<div class=\"trio\">\n");
        for (size_t kind = 0; kind < 3; kind++)
            report_add_picture(report, s, which, kinds[kind], sides[side], left);
        sp_html_raw(report->html, "</div>\n");
    }
    sp_html_raw(report->html, "</section>\n");
}

void sp_report_add_pictures(const sp_report *report)
{
    size_t left = SP_REPORT_PICTURES;
    bool has_head = false;

    assert(report->n > 0 && report->history);
    for (int run = 0; run < report->n; run++) {
        const sp_history *s = &report->history[run];

        if (sp_history_count(s->samples) == 0)
            continue;
        if (!has_head)
            sp_html_raw(report->html, "<h2>Samples of the validation</h2>\n");
        has_head = true;
        sp_report_head_run(report, run);
        report_pictures_add_legend(report, s);
        for (int i = 0; i < sp_history_count(s->samples) && i < MOST_SAMPLES; i++)
            report_add_sample(report, s, sp_history_get(s->samples, i), &left);
    }
}
