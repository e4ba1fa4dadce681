/* Inside of sp_augment. */
#ifndef SP_AUGMENT_INTERNAL_H
#define SP_AUGMENT_INTERNAL_H

#include "augment/sp_augment.h"

/* pi / 2 */
#define QUARTER 1.57079632679489661923

#endif
