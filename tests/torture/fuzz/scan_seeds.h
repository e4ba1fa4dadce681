/* Good scans of every format, made from the same few points. */
#ifndef SCAN_SEEDS_H
#define SCAN_SEEDS_H

#include "torture/fuzz/mutate.h"

enum { SEED_POINTS = 40, SEED_LAS_FORMATS = 11 };

/* LAS of point format 0 to 10; with_extra: it has a VLR that names extra bytes. */
blob seed_las(int format, bool with_extra);
/* LAS of format 6 with extended records: coordinate systems, extra bytes, COPC's. */
blob seed_las_records(void);
/* The same points, compressed; their other fields vary. */
blob seed_laz(int format);
enum { SEED_COPC_AT = 375, SEED_COPC_VLR = 54 + 160, SEED_COPC_ENTRY = 32 };
/* The same as COPC: its VLR is at SEED_COPC_AT, its index of two pages with two entries
 * each at *index. The index names only the first chunk. */
blob seed_copc(size_t *index);

typedef enum seed_order {
    SEED_ASCII,
    SEED_LITTLE,
    SEED_BIG,
    SEED_COMPRESSED
} seed_order;

/* with_faces: it has a second element with a list. */
blob seed_ply(seed_order order, bool with_faces);
/* SEED_ASCII, SEED_LITTLE or SEED_COMPRESSED. */
blob seed_pcd(seed_order order);
/* float64 [n,4]; with_fields: a structured type. */
blob seed_npy(bool with_fields);
/* Columns under a head line, separated by blanks or commas. */
blob seed_text(bool with_commas);
/* SemanticKITTI: n x (x, y, z, remission) as float32; labels as uint32. */
blob seed_kitti(void);
blob seed_kitti_labels(void);

#endif
