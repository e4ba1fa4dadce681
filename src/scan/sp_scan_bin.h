/* How many float32 a record of a .bin file has, which has no header. */
#ifndef SP_SCAN_BIN_H
#define SP_SCAN_BIN_H

#include "scan/sp_scan.h"

/* Sets *n to the float32 numbers of a point: the number that --columns lists; 5 in a
 * file that is named .pcd.bin or has the values of one (x y z intensity ring); else 4,
 * if the values are x y z remission. Local. SP_EDATA: the file's length does not fit,
 * or its values are something else; the message names the option. SP_EIO. */
sp_status sp_scan_bin_columns(sp_scan *scan, int *n);

#endif
