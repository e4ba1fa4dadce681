/* PNG files of 8-bit RGB, made in memory by zlib. Local. */
#ifndef SP_IMAGE_H
#define SP_IMAGE_H

#include <stddef.h>

#include "base/sp_error.h"

/* Encodes rgb [height][width][3]. *png is malloc'd for the caller; NULL after a failure.
 * SP_EMEM. */
sp_status sp_image_encode(const unsigned char *rgb, int width, int height,
                          unsigned char **png, size_t *bytes);

#endif
