/* Writing of a scan's points with codes, in the formats that are written anew (a LAS
 * file is copied instead: sp_scan_write_las). Local. */
#ifndef VOX_WRITE_H
#define VOX_WRITE_H

#include "scan/sp_scan.h"
#include "vox/vox_options.h"

/* Writes SemanticKITTI labels: code [n] as uint32. SP_EIO. */
sp_status vox_write_label(const char *path, const int32_t *code, int64_t n);
/* Writes the n points with all their attributes except a label, and with `label`, which
 * is code [n]. The scan is read from its beginning. SP_EIO, and errors of reading. */
sp_status vox_write_ply(const char *path, const vox_options *o, sp_scan *scan,
                        const int32_t *code, int64_t n);

#endif
