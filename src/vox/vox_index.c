/* spvox index: the index file of a folder of shards. Rank 0 works. */
#include "vox/vox.h"

#include <assert.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>

#include "base/sp_log.h"
#include "base/sp_text.h"
#include "base/sp_word_table.h"
#include "data/sp_index_file.h"
#include "data/sp_shard_internal.h"

static const sp_option option_table[] = {SP_OPTION_HELP_ROW};

const sp_usage vox_index_usage = {
    .line = "usage: spvox index FOLDER|SHARD...",
    .text =
        "Writes " SP_INDEX_FILE " into the folder of the shards (files, patterns, or "
        "a folder for all its files *.h5): what a start needs of each. With it a "
        "data set of many files or samples opens faster; training is the same. A "
        "shard that changes later is opened without it, with a warning.",
    .options = SP_WORD_ROWS(option_table),
};

/* Lists the shards that the arguments name; a folder stands for its files *.h5. */
static sp_status index_list(int n, char **args, sp_strings *paths)
{
    SP_CLOSED_BY(sp_strings_free) sp_strings patterns = {0};
    struct stat st;

    for (int i = 0; i < n; i++) {
        SP_FREED char *all = NULL;
        const bool is_folder = stat(args[i], &st) == 0 && S_ISDIR(st.st_mode);

        if (is_folder && asprintf(&all, "%s/*.h5", args[i]) < 0)
            return SP_FAIL(SP_EMEM, "no memory for file names");
        SP_TRY(sp_strings_add(&patterns, is_folder ? all : args[i]));
    }
    SP_TRY(sp_shard_glob(&patterns, paths));
    for (int i = 1; i < paths->n; i++)
        if (!sp_index_is_beside(paths->at[0], paths->at[i]))
            return SP_FAIL(SP_EUSAGE,
                           "index: %s and %s are in two folders, and each has an index "
                           "file of its own: name the shards of one",
                           paths->at[0], paths->at[i]);
    return SP_OK;
}

sp_status vox_index(int argc, char **argv, sp_comm *comm)
{
    SP_CLOSED_BY(sp_strings_free) sp_strings paths = {0};
    sp_indexed told;
    int n;

    assert(argc >= 1 && argv && comm);
    SP_TRY(sp_options_read(&n, SP_WORD_TABLE(option_table), "spvox", argc, argv, &n));
    if (n == 0)
        return SP_FAIL(SP_EUSAGE, "index: no shard given; see spvox index --help");
    if (comm->rank > 0)
        return SP_OK;
    SP_TRY(index_list(n, argv + 1, &paths));
    SP_TRY(sp_index_file_write(paths.at, paths.n, &told));
    printf("%s: %d shard%s, %lld samples, %.1f MiB\n", told.path, told.n_files,
           sp_plural(told.n_files), (long long)told.n_samples,
           (double)told.n_bytes / (1 << 20));
    if (told.n_left_out > 0)
        sp_log_warn0("%s: %d shard%s left out: each start looks through features that "
                     "are rounded to float32",
                     told.path, told.n_left_out, sp_plural(told.n_left_out));
    return SP_OK;
}
