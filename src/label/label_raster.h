/* Maps of a scan: which share of a cell's labelled points has each class, and which
 * share is doubtful.
 *
 *     thread that makes samples   point --> its cell          label_raster_cell
 *     owner of a block            class of a point --> counts label_raster_add
 *     all ranks                   sum of whole numbers        label_raster_sum
 *     rank 0                      counts --> GeoTIFF          label_raster_write
 *
 * Cells begin at multiples of their edge in the scan's coordinates, so that the maps of
 * adjoining scans fit together. */
#ifndef LABEL_RASTER_H
#define LABEL_RASTER_H

#include "comm/sp_comm.h"
#include "vox/vox_options.h"

/* Of points that no map has, and of points outside of --window. */
enum { LABEL_NO_CELL = INT32_MAX, LABEL_OUTSIDE = INT32_MAX - 1 };

typedef struct label_raster {
    double edge;      /* of a cell */
    int64_t first[2]; /* cell of the lowest x and y, counted from 0, 0 */
    int64_t n[2];     /* cells along x, along y */
    int n_classes;
    int64_t *count; /* [n[0] n[1]][n_classes + 1] points by class; doubtful points */
} label_raster;

/* True if this build writes maps. */
bool label_raster_is_built(void);
/* The cells of a scan's extent; nothing is allocated. SP_EDATA: the extent is not
 * known, or has more than 2^28 cells and classes. Local, as are all but _sum. */
sp_status label_raster_lay_out(label_raster *raster, const char *path,
                               const vox_extent *extent, double edge, int n_classes);
/* Allocates the counts, zeroed. SP_EMEM. Free in any case. */
sp_status label_raster_open(label_raster *raster);
void label_raster_free(label_raster *raster);
/* The cell of a point; LABEL_NO_CELL outside. */
uint32_t label_raster_cell(const label_raster *raster, double x, double y);
void label_raster_add(label_raster *raster, uint32_t cell, int label, bool is_doubtful);
/* Sums the counts of all ranks. Collective, agreed. */
sp_status label_raster_sum(label_raster *raster, sp_comm *comm);
/* Writes the map, with a band for each class and one for doubt, under a temporary name
 * that it then changes. epsg 0: the coordinate system is not known. SP_EIO, SP_EMEM. */
sp_status label_raster_write(const label_raster *raster, const char *path,
                             char *const *class_name, int epsg);

#endif
