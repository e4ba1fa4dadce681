/* The recipe in words. */
#include <string.h>

#include "base/sp_text.h"
#include "data/sp_recipe.h"

enum { SHOWN = 256 };

static void print_text(const char *text, FILE *to)
{
    char shown[SHOWN];

    fputs(sp_text_printable(shown, sizeof shown, text, false), to);
}

/* Prints a column, as "intensity = Intensity / 65535". A source that has the name of
 * the column is left out, and so is the divisor 1. */
static void print_column(const sp_recipe *r, int i, FILE *to)
{
    const bool is_height = strcmp(r->source[i], SP_RECIPE_HEIGHT) == 0;

    print_text(r->column[i], to);
    if (strcmp(r->source[i], r->column[i]) != 0) {
        fputs(" = ", to);
        print_text(r->source[i], to);
    }
    if (r->divisor[i] != 1)
        fprintf(to, " / %g", r->divisor[i]);
    if (is_height)
        fprintf(to, " (above percentile %g of the z of its sample)",
                r->height_percentile);
}

static void print_cut(const sp_recipe *r, FILE *to)
{
    const char *unit = r->unit && strcmp(r->unit, "metre") != 0 ? r->unit : "m";

    fprintf(to, "  voxels     %g %s\n", r->voxel_size, unit);
    if (r->block > 0)
        fprintf(to, "  samples    blocks of %g %s with a margin of %g %s\n", r->block,
                unit, r->overlap, unit);
    else
        fprintf(to, "  samples    whole scans\n");
    if (r->alignment > 0)
        fprintf(to, "             that begin at multiples of %lld voxels\n",
                (long long)r->alignment);
}

static void print_scans(const sp_recipe *r, FILE *to)
{
    fputs("  scans      ", to);
    for (int i = 0; i < r->n_formats; i++) {
        fputs(i ? ", " : "", to);
        print_text(r->format[i], to);
    }
    fprintf(to, "%scoordinates in %s\n", r->n_formats ? "; " : "",
            r->unit ? r->unit : "a unit that they do not name");
    if (r->scan_columns) {
        fputs("             with the columns ", to);
        print_text(r->scan_columns, to);
        fputc('\n', to);
    }
    if (r->z_unit) {
        fputs("             with --z-unit ", to);
        print_text(r->z_unit, to);
        fputc('\n', to);
    }
    if (r->sweeps) {
        fputs("             samples join ", to);
        print_text(r->sweeps, to);
        fputs(" scans by their poses\n", to);
    }
    if (r->label_field) {
        fputs("             labelled by ", to);
        print_text(r->label_field, to);
        fputc('\n', to);
    }
}

static void print_classes(int n, char *const *name, char *const *code, FILE *to)
{
    for (int i = 0; name && i < n; i++) {
        fprintf(to, "%s%3d ", i ? "           " : "  classes  ", i);
        print_text(name[i], to);
        if (code) {
            fputs(" = ", to);
            print_text(code[i], to);
        }
        fputc('\n', to);
    }
}

void sp_recipe_print(const sp_recipe *r, int n_classes, char *const *class_name,
                     char *const *class_code, FILE *to)
{
    fputs("how scans became samples\n", to);
    if (r) {
        print_cut(r, to);
        for (int i = 0; i < r->n_columns; i++) {
            fputs(i ? "             " : "  columns    ", to);
            print_column(r, i, to);
            fputc('\n', to);
        }
        print_scans(r, to);
    } else {
        fputs("  not kept: written by an older version or by another program; a scan\n"
              "  is converted with the same options as theirs\n",
              to);
    }
    print_classes(n_classes, class_name, class_code, to);
    if (class_name && !class_code)
        fputs("             their codes in the scans are not kept\n", to);
}
