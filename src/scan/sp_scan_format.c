/* The table of scan formats: recognition, writing of classes, and lists for help. */
#include "scan/sp_scan_format.h"

#include <assert.h>
#include <errno.h>
#include <limits.h>
#include <string.h>
#include <unistd.h>

#include "base/sp_file.h"
#include "base/sp_word_table.h"

#define ROW(format) &sp_scan_##format,
static const sp_scan_format *const formats[] = {SP_SCAN_FORMATS(ROW)};
enum { N_FORMATS = sizeof formats / sizeof *formats, LIST = 256 };

/* Lists the endings of all formats, or of those that are written. */
static const char *list_endings(bool is_written, char list[LIST])
{
    size_t used = 0;

    for (int i = 0; i < N_FORMATS; i++) {
        const char *one = is_written ? formats[i]->written : formats[i]->endings;

        if (one)
            used += (size_t)snprintf(list + used, LIST - used, " %s", one);
    }
    return list + 1;
}

sp_status sp_scan_recognize(const char *path, const unsigned char head[SP_SCAN_HEAD],
                            const sp_scan_format **format)
{
    char list[LIST];

    assert(path && format);
    for (int i = 0; i < N_FORMATS; i++) {
        *format = formats[i];
        if ((*format)->is_ours ? (*format)->is_ours(head)
                               : sp_file_ends_in(path, (*format)->endings))
            return SP_OK;
    }
    *format = NULL;
    return SP_FAIL(SP_EDATA, "%s: unknown format; expected a file of one of %s", path,
                   list_endings(false, list));
}

static const sp_scan_format *find_output(const char *path)
{
    for (int i = 0; i < N_FORMATS; i++)
        if (formats[i]->write && sp_file_ends_in(path, formats[i]->written))
            return formats[i];
    return NULL;
}

sp_status sp_scan_check_output(const char *path)
{
    char list[LIST];

    assert(path);
    if (!find_output(path))
        return SP_FAIL(SP_EUSAGE, "%s: expected a name that ends in one of %s", path,
                       list_endings(true, list));
    if (strlen(path) >= PATH_MAX - sizeof SP_FILE_UNFINISHED)
        return SP_FAIL(SP_EUSAGE, "%s: the path is too long", path);
    return SP_OK;
}

const char *sp_scan_output_ending(const sp_scan *scan)
{
    const sp_scan_format *format = scan->format;

    assert(scan->format);
    if (format == &sp_scan_ply_lists)
        format = &sp_scan_ply;
    if (format == &sp_scan_ept)
        format = &sp_scan_laz;
    return format->write ? format->written : sp_scan_text.written;
}

int32_t sp_scan_most_code(const sp_scan *scan, const char *path)
{
    const sp_scan_format *format = find_output(path);

    assert(format);
    return format->most_code ? format->most_code(scan) : INT32_MAX;
}

sp_status sp_scan_check_labels(const sp_scan *scan, const char *path,
                               const int32_t *code, int n, int n_added,
                               const sp_scan_added *added)
{
    const sp_scan_format *format = find_output(path);
    int32_t most;

    assert(n >= 0 && (code || n == 0));
    assert(n_added >= 0 && (added || n_added == 0));
    SP_TRY(sp_scan_check_output(path));
    if (n_added > 0 && format->check_added)
        SP_TRY(format->check_added(scan, n_added, added));
    most = sp_scan_most_code(scan, path);
    for (int i = 0; i < n; i++)
        if (code[i] > most)
            return SP_FAIL(SP_EDATA, "%s: class code %d, but %s holds 0 to %d",
                           scan->path, code[i], scan->title, most);
    return SP_OK;
}

/* Refuses an output in place of the scan, or of its labels, which would be lost. */
static sp_status check_is_copy(const sp_scan *scan, const char *path)
{
    const bool is_scan = sp_file_is_same(scan->path, path);

    if (is_scan || (scan->label_path && sp_file_is_same(scan->label_path, path)))
        return SP_FAIL(SP_EUSAGE,
                       "%s: the output would replace %s; choose another --out", path,
                       is_scan ? "the scan" : "the labels of the scan");
    return SP_OK;
}

/* Writes the file `path` with the content that the part says. */
static sp_status write_file(sp_scan *scan, const char *path,
                            const sp_scan_labels *labels, sp_scan_part part)
{
    sp_status rc;

    part.name = path;
    part.to = fopen(path, "wb");
    if (!part.to)
        return SP_FAIL(SP_EIO, "%s: cannot create: %s", path, strerror(errno));
    rc = part.format->write(scan, labels, &part);
    if (!sp_file_close(part.to) && rc == SP_OK)
        rc = SP_FAIL(SP_EIO, "%s: cannot write: %s", path, strerror(errno));
    return rc;
}

/* Writes all of a copy under a temporary name at first, from n parts, if n > 0. */
static sp_status write_copy(sp_scan *scan, const char *path,
                            const sp_scan_labels *labels, int n, char *const *parts)
{
    const sp_scan_part all = {.format = find_output(path), .n = n, .path = parts};
    char temporary[PATH_MAX];
    sp_status rc;

    assert(scan && labels->get && labels->n >= 0);
    SP_TRY(check_is_copy(scan, path));
    SP_TRY(sp_scan_check_labels(scan, path, NULL, 0, labels->n_added, labels->added));
    snprintf(temporary, sizeof temporary, "%s" SP_FILE_UNFINISHED, path);
    rc = write_file(scan, temporary, labels, all);
    if (rc == SP_OK)
        rc = sp_file_rename(temporary, path);
    if (rc != SP_OK)
        unlink(temporary);
    return rc;
}

sp_status sp_scan_write(sp_scan *scan, const char *path, const sp_scan_labels *labels)
{
    return write_copy(scan, path, labels, 0, NULL);
}

int64_t sp_scan_section(sp_scan *scan, const char *path)
{
    const sp_scan_format *format = find_output(path);

    assert(scan && path);
    return format && format->section ? format->section(scan, format) : 0;
}

sp_status sp_scan_write_part(sp_scan *scan, const char *path,
                             const sp_scan_labels *labels, int k, int n, const char *to)
{
    const sp_scan_part part = {.format = find_output(path), .n = n, .k = k};

    assert(sp_scan_section(scan, path) > 0 && 0 <= k && k < n && labels->get);
    SP_TRY(sp_scan_check_labels(scan, path, NULL, 0, labels->n_added, labels->added));
    return write_file(scan, to, labels, part);
}

sp_status sp_scan_join(sp_scan *scan, const char *path, const sp_scan_labels *labels,
                       int n, char *const *part)
{
    assert(sp_scan_section(scan, path) > 0 && n >= 1 && part);
    return write_copy(scan, path, labels, n, part);
}

void sp_scan_print_formats(FILE *to)
{
    sp_word_entry row[N_FORMATS];

    for (int i = 0; i < N_FORMATS; i++)
        row[i] = (sp_word_entry){formats[i]->endings, NULL, formats[i]->help};
    sp_word_table_print(SP_WORD_TABLE(row), to);
}

void sp_scan_print_outputs(FILE *to)
{
    sp_word_entry row[N_FORMATS];
    int n = 0;

    for (int i = 0; i < N_FORMATS; i++)
        if (formats[i]->write)
            row[n++] =
                (sp_word_entry){formats[i]->written, NULL, formats[i]->written_help};
    sp_word_table_print((sp_word_table){row, sizeof *row, n}, to);
}
