/* A scan's points with codes, as files of the formats that are written anew (a LAS is
 * copied: sp_scan_las.h). Local. SP_EIO. */
#ifndef VOX_WRITE_H
#define VOX_WRITE_H

#include "scan/sp_scan.h"
#include "vox/vox_options.h"

/* SemanticKITTI: code [n] as uint32. */
sp_status vox_write_label(const char *path, const int32_t *code, int64_t n);
/* The n points with all their attributes but a label, and `label`, code [n]. Reads the
 * scan from its beginning. */
sp_status vox_write_ply(const char *path, const vox_options *o, sp_scan *scan,
                        const int32_t *code, int64_t n);

#endif
