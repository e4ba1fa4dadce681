/* Inside of packed models: the header, by the same calls for writing and reading. */
#ifndef SP_PACKED_INTERNAL_H
#define SP_PACKED_INTERNAL_H

#include "base/sp_serial.h"
#include "weights/sp_packed.h"

#define SP_PACKED_MAGIC "SPMODEL1"
enum {
    SP_PACKED_HEAD = 32,
    SP_PACKED_ALIGNED = 64,
    SP_PACKED_LEAST_ROW = 9 + 4 + 4 + 24 /* bytes of a row of the header's table */
};

typedef enum packed_type { PACKED_F32, PACKED_BF16 } packed_type;

/* A row of the header's table. */
typedef struct packed_row {
    char *name; /* "/params/conv1/weight" */
    int32_t type, n_dims;
    int64_t dim[3];
} packed_row;

/* The header's content beyond the model. */
typedef struct packed_header {
    char *program, *source;
    int32_t precision;
    int64_t n_rows;
    packed_row *row;
} packed_header;

/* Writes the header to bytes, or reads it. The caller frees a header that was read
 * (sp_packed_free_header, sp_weights_model_close), after a failure too. */
void sp_packed_serialize_header(sp_serial *serial, packed_header *h,
                                sp_weights_model *m);
void sp_packed_free_header(packed_header *h);
/* The stored type of a parameter or statistic in a model of this precision. */
packed_type sp_packed_type_of(const sp_graph *graph, const sp_param *p,
                              sp_precision precision);
/* Makes the row of a parameter or statistic of the group "/params" or "/buffers".
 * SP_EMEM. */
sp_status sp_packed_make_row(const sp_graph *graph, const sp_param *p,
                             const char *group, sp_precision precision,
                             packed_row *row);
/* The bytes of all numbers. */
size_t sp_packed_count_bytes(const sp_graph *g, sp_precision precision);
/* The checksum of the bytes of a file from 16 to the numbers. */
uint32_t sp_packed_header_crc(const unsigned char *file, size_t begin);

#endif
