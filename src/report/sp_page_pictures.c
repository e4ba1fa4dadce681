/* The pictures of a page: samples of data.val that eval or training have chosen. */
#include <assert.h>
#include <limits.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/sp_file.h"
#include "report/sp_page.h"
#include "report/sp_page_internal.h"
#include "report/sp_palette.h"

static const char *const kinds[] = {"truth", "prediction", "error"};
static const char *const sides[] = {"top", "oblique"};

/* Is the name one of those that pictures.json may have? It becomes part of a path. */
static bool is_known(const char *which)
{
    return strcmp(which, "best") == 0 || strcmp(which, "median") == 0 ||
           strcmp(which, "worst") == 0;
}

/* Embeds one picture; *left: bytes that may still be used. */
static void page_add_picture(const sp_page *page, const sp_story *s, const char *which,
                             const char *kind, const char *side, size_t *left)
{
    static const char magic[8] = {'\x89', 'P', 'N', 'G', '\r', '\n', '\x1a', '\n'};
    char path[PATH_MAX], *bytes = NULL;
    size_t n = 0;

    snprintf(path, sizeof path, "%s/pictures/%s-%s-%s.png", s->dir, which, kind, side);
    sp_html_add(page->html, "<figure><figcaption>%s%s</figcaption>", kind,
                strcmp(side, "top") == 0 ? "" : ", oblique");
    if (sp_file_read(path, &bytes, &n) != SP_OK || n < sizeof magic ||
        memcmp(bytes, magic, sizeof magic) != 0)
        sp_html_raw(page->html, "<p class=\"soft\">this picture cannot be read</p>");
    else if (n > *left)
        sp_html_raw(
            page->html,
            "<p class=\"soft\">left out, since the page would grow too large; it "
            "is in the folder pictures</p>");
    else {
        *left -= n;
        sp_html_add(page->html,
                    "<img alt=\"%s of the %s sample, %s view\" "
                    "src=\"data:image/png;base64,",
                    kind, which, side);
        sp_html_base64(page->html, bytes, n);
        sp_html_raw(page->html, "\">");
    }
    sp_html_raw(page->html, "</figure>\n");
    free(bytes);
}

static void add_swatch(const sp_page *page, sp_colour c, const char *name)
{
    sp_html_add(page->html,
                "<li><i class=\"dot\" style=\"background:#%02x%02x%02x\"></i>%s</li>",
                c.r, c.g, c.b, name);
}

static void page_pictures_add_legend(const sp_page *page, const sp_story *s)
{
    const sp_story_eval *e = sp_story_last(s);

    sp_html_raw(page->html, "<ul class=\"keys\">");
    for (int c = 0; e && c < e->n_classes && c < 64; c++)
        add_swatch(page, sp_palette_class(c), e->class_name[c]);
    add_swatch(page, sp_palette_ignored, "without a class");
    add_swatch(page, sp_palette_right, "right");
    add_swatch(page, sp_palette_wrong, "wrong");
    sp_html_raw(page->html, "</ul>\n");
}

static void page_add_sample(const sp_page *page, const sp_story *s, int i, size_t *left)
{
    const sp_story_sample *sample = &s->sample[i];

    sp_html_add(
        page->html,
        "<section class=\"sample\"><h3>The %s sample: mean IoU %.4f <small>%s, %g "
        "voxels, step %g</small></h3>\n",
        sample->which, sample->miou, sample->name, sample->voxels, sample->step);
    for (size_t side = 0; side < 2; side++) {
        sp_html_raw(page->html, "<div class=\"trio\">\n");
        for (size_t kind = 0; kind < 3; kind++)
            page_add_picture(page, s, sample->which, kinds[kind], sides[side], left);
        sp_html_raw(page->html, "</div>\n");
    }
    sp_html_raw(page->html, "</section>\n");
}

void sp_page_add_pictures(const sp_page *page)
{
    size_t left = SP_PAGE_PICTURES;
    bool has_head = false;

    assert(page->n > 0 && page->story);
    for (int run = 0; run < page->n; run++) {
        const sp_story *s = &page->story[run];

        if (s->n_samples == 0)
            continue;
        if (!has_head)
            sp_html_raw(page->html, "<h2>Samples of the validation</h2>\n");
        has_head = true;
        sp_page_head_run(page, run);
        page_pictures_add_legend(page, s);
        for (int i = 0; i < s->n_samples; i++)
            if (is_known(s->sample[i].which))
                page_add_sample(page, s, i, &left);
    }
}
