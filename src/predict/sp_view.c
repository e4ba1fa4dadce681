#include "predict/sp_view.h"

#include <assert.h>
#include <string.h>

#include "base/sp_log.h"

/* pi / 2 */
#define QUARTER 1.57079632679489661923

enum { MOST_TURNS = 8, MOST_SCALES = 3 };
_Static_assert(MOST_TURNS *MOST_SCALES == SP_MAX_VIEWS, "room for all views");

/* Lists turns and mirrors; returns their number. Turning by 180 degrees is mirroring
 * both axes, so with turns one mirror makes all symmetries of a square. */
static int list_symmetries(bool with_turns, bool with_flips, sp_augment *at)
{
    const int mirrors = !with_flips ? 1 : with_turns ? 2 : 4;
    int n = 0;

    for (int mirror = 0; mirror < mirrors; mirror++)
        for (int turn = 0; turn < (with_turns ? 4 : 1); turn++) {
            at[n] = sp_augment_none();
            at[n].flip_x = mirror & 1;
            at[n].flip_y = mirror & 2;
            at[n++].angle = QUARTER * turn;
        }
    return n;
}

/* Lists the factors that scale samples; returns their number. */
static int list_scales(const sp_doubles *range, bool has_subvoxel,
                       double scale[MOST_SCALES])
{
    int n = 0;

    scale[n++] = 1;
    for (int i = 0; has_subvoxel && range->n == 2 && i < 2; i++)
        if (range->at[i] != 1 && (i == 0 || range->at[1] != range->at[0]))
            scale[n++] = range->at[i];
    return n;
}

sp_views sp_views_make(const sp_config *config, bool has_subvoxel, int wanted)
{
    sp_views views = {0};
    double scale[MOST_SCALES];
    const bool with_turns =
        config->augment.rotate_z && config->augment.rotate_max >= 180;
    const int n = list_symmetries(with_turns, config->augment.flip, views.at);
    const int n_scales = list_scales(&config->augment.scale, has_subvoxel, scale);

    assert(wanted >= 1);
    for (int s = 1; s < n_scales; s++)
        for (int i = 0; i < n; i++) {
            views.at[s * n + i] = views.at[i];
            views.at[s * n + i].scale = scale[s];
        }
    views.n_possible = n * n_scales;
    views.n = wanted < views.n_possible ? wanted : views.n_possible;
    return views;
}

bool sp_views_are_scaled(const sp_views *views)
{
    assert(views->n >= 1);
    return views->at[views->n - 1].scale != 1;
}

void sp_views_print(const sp_views *views, char text[SP_VIEWS_TEXT])
{
    size_t used = (size_t)snprintf(text, SP_VIEWS_TEXT, "%d", views->n);

    assert(views->n >= 1 && text);
    for (int v = 0; v < views->n; v++) {
        const sp_augment *a = &views->at[v];
        const int degrees = 90 * (int)(a->angle / QUARTER + 0.5);
        char word[64], mirror[8] = "", scale[32] = "";

        if (a->flip_x || a->flip_y)
            snprintf(mirror, sizeof mirror, " %s%s", a->flip_x ? "x" : "",
                     a->flip_y ? "y" : "");
        if (a->scale != 1)
            snprintf(scale, sizeof scale, " *%g", a->scale);
        snprintf(word, sizeof word, "%s%d%s%s", v ? ", " : ": ", degrees, mirror,
                 scale);
        if (used + strlen(word) < SP_VIEWS_TEXT)
            used += (size_t)snprintf(text + used, SP_VIEWS_TEXT - used, "%s", word);
    }
}

sp_views sp_views_choose(const sp_config *config, bool has_subvoxel, int wanted)
{
    const sp_views views = sp_views_make(config, has_subvoxel, wanted);
    char text[SP_VIEWS_TEXT];

    if (wanted == 1)
        return views;
    sp_views_print(&views, text);
    if (views.n < wanted)
        sp_log_warn0("%d views asked for: the model's augmentation allows %d (flip = %s, "
                     "rotate_z = %s, scale%s)",
                     wanted, views.n, config->augment.flip ? "true" : "false",
                     !config->augment.rotate_z             ? "false"
                     : config->augment.rotate_max >= 180 ? "true"
                                                         : "below 180 degrees",
                     config->augment.scale.n == 0 ? " = []"
                     : has_subvoxel               ? ""
                                                  : " needs /subvoxel of data.val");
    sp_log_info("views %s (degrees about z, mirrored axes, scale)", text);
    return views;
}
