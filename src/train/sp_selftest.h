/* Does a device compute what the CPU computes? One step of training and one evaluation
 * of a small network on small fixed data, on both. */
#ifndef SP_SELFTEST_H
#define SP_SELFTEST_H

#include "net/sp_net.h"

/* device: open, on the thread that will compute on it. SP_EDEVICE names what deviates
 * and by how much. Tolerances are those of its precision. Local; some milliseconds. */
sp_status sp_selftest_device(sp_backend *device);
/* Does wgmma compute what mma.sync does? With device->is_wgmma: a convolution and an
 * input gradient with all that is taken on their way out, both ways. SP_EDEVICE names
 * what deviates. Local; some milliseconds. */
sp_status sp_selftest_wgmma(sp_backend *device);

#endif
