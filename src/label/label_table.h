/* Counts of each labelled scan, for tables of an area (--summary).
 *
 *     points of a scan --label_tally_add--> counts of a rank --sum over ranks-->
 *     DIR/.sptrain/NAME.stats   written before the output gets its name
 *     all .stats --label_table_write--> PREFIX.csv, PREFIX.geojson
 */
#ifndef LABEL_TABLE_H
#define LABEL_TABLE_H

#include "label/label_files.h"
#include "label/label_tally.h"

/* Writes the counts of output i. seconds: the time for its scan. Local; one rank calls
 * it. SP_EIO. */
sp_status label_table_keep(const label_files *files, int i, const label_tally *tally,
                           double seconds);
/* Writes PREFIX.csv and PREFIX.geojson of all outputs that have counts, including other
 * processes' outputs. Local; rank 0 calls it. SP_EIO; SP_EMEM. */
sp_status label_table_write(const label_files *files, const label_model *model,
                            const char *prefix);

#endif
