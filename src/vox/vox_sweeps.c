#include "vox/vox_sweeps.h"

#include <assert.h>
#include <ctype.h>
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/sp_file.h"
#include "base/sp_list.h"
#include "base/sp_log.h"

/* Numbers of text have six digits or more, so rows of a rotation have length 1 within
 * this. */
#define RIGID 1e-3

/* ---- motions ---- */

static vox_motion motion_of(const vox_motion *a, const vox_motion *b)
{
    vox_motion to;

    for (int i = 0; i < 3; i++)
        for (int j = 0; j < 4; j++) {
            to.at[i][j] = j == 3 ? a->at[i][3] : 0;
            for (int k = 0; k < 3; k++)
                to.at[i][j] += a->at[i][k] * b->at[k][j];
        }
    return to;
}

/* The inverse of [R | t] by cofactors: R of a text is not quite orthogonal, and its
 * transpose would be off by what was rounded. */
static vox_motion motion_inverse(const vox_motion *m)
{
    const double(*r)[4] = m->at;
    vox_motion to;
    double det = 0;

    for (int i = 0; i < 3; i++)
        for (int j = 0; j < 3; j++) {
            const int a = (j + 1) % 3, b = (j + 2) % 3, c = (i + 1) % 3,
                      d = (i + 2) % 3;

            to.at[i][j] = r[a][c] * r[b][d] - r[a][d] * r[b][c];
        }
    for (int k = 0; k < 3; k++)
        det += r[0][k] * to.at[k][0];
    assert(det > 0 && "motion_is_rigid was asked");
    for (int i = 0; i < 3; i++) {
        for (int j = 0; j < 3; j++)
            to.at[i][j] /= det;
        to.at[i][3] = 0;
        for (int k = 0; k < 3; k++)
            to.at[i][3] -= to.at[i][k] * r[k][3];
    }
    return to;
}

/* Is R a rotation? A mirror image has another sign, a scale another length. */
static bool motion_is_rigid(const vox_motion *m)
{
    double det = 0;

    for (int i = 0; i < 3; i++)
        for (int j = 0; j <= i; j++) {
            double dot = 0;

            for (int k = 0; k < 3; k++)
                dot += m->at[i][k] * m->at[j][k];
            if (!(fabs(dot - (i == j)) < RIGID))
                return false;
        }
    for (int k = 0; k < 3; k++)
        det += m->at[0][k] * (m->at[1][(k + 1) % 3] * m->at[2][(k + 2) % 3] -
                              m->at[1][(k + 2) % 3] * m->at[2][(k + 1) % 3]);
    return det > 0;
}

/* ---- files ---- */

/* Reads the 12 numbers of a line. */
static sp_status motion_read(const char *path, int64_t line, const char *text,
                             vox_motion *to)
{
    for (int i = 0; i < 12; i++) {
        char *end;

        to->at[i / 4][i % 4] = strtod(text, &end);
        if (end == text || !isfinite(to->at[i / 4][i % 4]))
            return SP_FAIL(SP_EDATA,
                           "%s: line %" PRId64
                           ": number %d is missing, expected the 12 "
                           "numbers of a pose [R | t], row by row",
                           path, line, i + 1);
        text = end;
    }
    if (text[strspn(text, " \t\r")] != '\0')
        return SP_FAIL(SP_EDATA,
                       "%s: line %" PRId64 ": more than the 12 numbers of a pose", path,
                       line);
    return motion_is_rigid(to)
               ? SP_OK
               : SP_FAIL(SP_EDATA,
                         "%s: line %" PRId64 ": its 3 x 3 numbers are no rotation, "
                         "expected rows of [R | t]",
                         path, line);
}

/* Cuts the next line off a text, or returns NULL at its end. */
static char *next_line(char **text)
{
    char *line = *text, *end = line ? strchr(line, '\n') : NULL;

    if (!line || !*line)
        return NULL;
    *text = end ? end + 1 : NULL;
    if (end)
        *end = '\0';
    return line;
}

/* Reads the line "Tr:" of the calib.txt beside the poses; *has: it is there. */
static sp_status calib_read(const char *poses, vox_motion *tr, bool *has)
{
    const size_t folder = (size_t)(sp_file_name(poses) - poses);
    SP_FREED char *path = NULL;
    SP_FREED char *text = NULL;
    char *line, *at;
    int64_t number = 0;

    *has = false;
    SP_TRY(SP_NEW(&path, folder + sizeof "calib.txt", poses));
    sprintf(path, "%.*scalib.txt", (int)folder, poses);
    if (!sp_file_is_absent(path))
        SP_TRY(sp_file_read(path, &text, NULL));
    for (at = text; !*has && (line = next_line(&at));) {
        number++;
        if (strncmp(line, "Tr:", 3) != 0 && strncmp(line, "Tr ", 3) != 0)
            continue;
        SP_TRY(motion_read(path, number, line + 3, tr));
        *has = true;
    }
    return SP_OK;
}

static sp_status poses_read(vox_sweeps *s, const char *path)
{
    vox_motion tr, back, pose;
    SP_FREED char *text = NULL;
    char *at, *line;
    bool has_tr;

    s->n_poses = 0;
    SP_TRY(calib_read(path, &tr, &has_tr));
    if (has_tr)
        back = motion_inverse(&tr);
    SP_TRY(sp_file_read_input(path, &text, NULL));
    for (at = text; (line = next_line(&at));) {
        if (line[strspn(line, " \t\r")] == '\0' && !at)
            break; /* an empty last line */
        SP_TRY(motion_read(path, s->n_poses + 1, line, &pose));
        if (!sp_list_grow(&s->pose, s->n_poses, sizeof pose))
            return SP_FAIL(SP_EMEM, "%s: no memory for poses", path);
        if (has_tr) {
            pose = motion_of(&pose, &tr);
            pose = motion_of(&back, &pose);
        }
        s->pose[s->n_poses++] = pose;
    }
    return SP_OK;
}

/* Makes the poses of a scan the table of `s`. */
static sp_status table_open(vox_sweeps *s, const char *scan)
{
    static const char *const folder[] = {"", "../"};
    const int own = (int)(sp_file_name(scan) - scan);
    const size_t bytes = strlen(scan) + sizeof "../poses.txt";
    char *path = malloc(bytes);
    sp_status rc;

    if (!path)
        return SP_FAIL(SP_EMEM, "%s: no memory for a path", scan);
    if (strcmp(s->poses, VOX_POSES_AUTO) != 0) {
        free(path);
        path = strdup(s->poses);
    }
    for (int i = 0; i < 2 && path && strcmp(s->poses, VOX_POSES_AUTO) == 0; i++) {
        snprintf(path, bytes, "%.*s%sposes.txt", own, scan, folder[i]);
        if (!sp_file_is_absent(path))
            break;
    }
    if (path && s->path && strcmp(path, s->path) == 0) {
        free(path);
        return SP_OK;
    }
    free(s->path);
    s->path = NULL;
    if (path && strcmp(s->poses, VOX_POSES_AUTO) == 0 && sp_file_is_absent(path))
        rc = SP_FAIL(SP_EDATA,
                     "%s: no poses.txt in its folder or in the one above it; --poses "
                     "FILE names the file",
                     scan);
    else
        rc = path ? poses_read(s, path) : SP_FAIL(SP_EMEM, "%s: no memory", scan);
    if (rc == SP_OK)
        s->path = path;
    else
        free(path);
    return rc;
}

/* ---- names ---- */

/* The digits at the end of a name's stem: 000012 of 000012.bin and of 000012.pcd.bin.
 * NULL: it has no digits there. */
static const char *find_number(const char *path, int *n)
{
    const char *name = sp_file_name(path), *end = name + strcspn(name, "."), *at = end;

    while (at > name && isdigit((unsigned char)at[-1]))
        at--;
    *n = (int)(end - at);
    return *n > 0 && *n <= 15 ? at : NULL;
}

static sp_status note_absent(vox_sweeps *s, char *path)
{
    s->n_absent++;
    if (s->absent)
        free(path);
    else
        s->absent = path;
    return SP_OK;
}

sp_status vox_sweeps_find(vox_sweeps *s, const char *path, int age, char **to,
                          vox_motion *motion)
{
    int digits;
    const char *at = find_number(path, &digits);
    const size_t bytes = strlen(path) + 16;
    int64_t k;
    vox_motion now;

    assert(s->poses && age >= 0 && to && motion);
    *to = NULL;
    if (!at)
        return SP_FAIL(SP_EDATA,
                       "%s: its name does not end in a number, its line in the poses, "
                       "as 000012.bin does",
                       path);
    k = strtoll(at, NULL, 10);
    SP_TRY(table_open(s, path));
    if (k >= s->n_poses)
        return SP_FAIL(SP_EDATA,
                       "%s: %" PRId64 " poses, expected one in line %" PRId64 " for %s",
                       s->path, s->n_poses, k + 1, path);
    if (k < age)
        return SP_OK;
    SP_TRY(SP_NEW(to, bytes, path));
    snprintf(*to, bytes, "%.*s%0*" PRId64 "%s", (int)(at - path), path, digits, k - age,
             at + digits);
    now = motion_inverse(&s->pose[k]);
    *motion = motion_of(&now, &s->pose[k - age]);
    if (age > 0 && sp_file_is_absent(*to)) {
        char *absent = *to;

        *to = NULL;
        return note_absent(s, absent);
    }
    return SP_OK;
}

sp_status vox_sweeps_tell(const vox_sweeps *s, sp_comm *comm)
{
    int64_t n = s->n_absent;
    char *list = NULL;
    size_t bytes;

    SP_TRY(sp_comm_allreduce(comm, SP_SCOPE_WORLD, &n, 1, SP_I64, SP_SUM));
    if (n == 0)
        return SP_OK;
    SP_TRY(sp_comm_gather(comm, s->absent, s->absent ? strlen(s->absent) + 1 : 0,
                          (void **)&list, &bytes));
    if (comm->rank == 0)
        sp_log_warn("earlier scans that are not there, and are left out of their "
                    "samples: %" PRId64 ", such as %s",
                    n, list);
    free(list);
    return SP_OK;
}

void vox_sweeps_destroy(vox_sweeps *s)
{
    free(s->path);
    free(s->pose);
    free(s->absent);
    *s = (vox_sweeps){.poses = s->poses};
}
