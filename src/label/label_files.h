/* The outputs of `sptrain label`: their names, and which of them are finished.
 *
 *     DIR/NAME                 complete; it got this name in one step
 *     DIR/.sptrain/NAME.made   two lines: length and time of the output; what it was
 *                              made of: model, options, scan with length and time
 *     DIR/.sptrain/tmp/        outputs while they are written, points cut into blocks;
 *                              emptied when a run begins
 *
 * The second file is written before the first gets its name, so a run that is killed
 * between the two makes the output anew. An output is finished if both lines equal the
 * lines that this run would write. A file in DIR with a wrong first line, or without
 * one, is somebody else's and is not replaced without --overwrite. */
#ifndef LABEL_FILES_H
#define LABEL_FILES_H

#include "label/label_model.h"

enum { LABEL_NAME = 256, LABEL_PATH = 4096 };
/* The ending of the file with the chunks that a window of COPC needs. */
#define LABEL_CHUNKS ".chunks"

/* One scan and its output. Ranks exchange it as plain bytes. */
typedef struct label_file {
    char name[LABEL_NAME]; /* of the output in DIR */
    bool is_done;
    bool is_skipped;   /* it cannot be labelled; see label_files_skip */
    int64_t n_points;  /* that the header claims; -1: not known */
    int64_t section;   /* as sp_scan_section says of the output */
    vox_extent extent; /* of its points; low above high: not known */
    int epsg;          /* of its coordinate system; 0: not known */
    int32_t most_code; /* the largest that its format holds */
} label_file;

/* A scan among all, sorted by where they begin in x. */
typedef struct label_begin {
    double low, most_high; /* its lowest x; the highest x of it and those before it */
    int file;
} label_begin;

typedef struct label_files {
    int n;
    label_file *file;   /* [n] as the scans of the options */
    label_begin *begin; /* [n] to find neighbours by */
    char *dir;          /* DIR */
    char *work;         /* DIR/.sptrain */
    char crs[48];       /* of the first scan that names one, "urn:..."; "": not known */
    char tmp[64];       /* name of the folder of unfinished files in `work` */
    const label_options *options;       /* borrowed */
    char first_fault[SP_ERROR_MESSAGE]; /* of the first scan that was skipped */
    char *made_by; /* the model and the options, as text for one line */
} label_files;

/* Lists the outputs and checks every scan, without writing anything. Scans that are
 * damaged or do not fit the model (errors of label_model_check) are skipped, unless all
 * of them are. SP_EUSAGE: two outputs of one name, an output that is a scan of the
 * command line, a file that is not to be replaced. Collective, agreed; rank 0 reads.
 * Close in any case. */
sp_status label_files_open(label_files *files, label_model *model,
                           const label_options *options);
void label_files_close(label_files *files);
/* Notes that scan i is skipped, for this reason. Local. */
void label_files_skip(label_files *files, int i, const char *why);
/* Fails with SP_EDATA if any rank has skipped a scan, with their number and the first
 * reason. Collective, agreed. */
sp_status label_files_report_skipped(const label_files *files, sp_comm *comm);
/* Makes the folder of unfinished files, without any, on rank 0 once the run folder is
 * locked; removes it with its content, once no rank writes. Local. SP_EIO. */
sp_status label_files_begin(const label_files *files);
void label_files_end(const label_files *files);
/* Sorts the scans for label_files_near, once their extents are known; a second call does
 * nothing. Local. SP_EMEM. */
sp_status label_files_sort(label_files *files);
/* Lists the other scans within this distance of scan i, in x and y, in the order of the
 * command line; the caller frees *near [*n], which are NULL and 0 before. Only scans that
 * begin at nearly the same x are looked at. Local. SP_EMEM. */
sp_status label_files_near(const label_files *files, int i, double distance, int **near,
                           int *n);
/* Gives the path where output i is written, followed by `ending`; path has LABEL_PATH
 * bytes and is returned. */
const char *label_files_unfinished(const label_files *files, int i, const char *ending,
                                   char *path);
/* Gives a complete output its name. Local. SP_EIO; SP_EMEM. */
sp_status label_files_finish(const label_files *files, int i);

#endif
