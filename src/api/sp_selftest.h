/* Self-tests of a device at the start of a run: small problems with known answers. */
#ifndef SP_SELFTEST_H
#define SP_SELFTEST_H

#include "net/sp_net.h"

/* Compares one training step and one evaluation of a small network on small fixed data
 * with the same on the CPU. device: open, on the thread that will compute on it.
 * SP_EDEVICE names the quantity that deviates and by how much; tolerances depend on the
 * device's precision. Local; some milliseconds. */
sp_status sp_selftest_device(sp_backend *device);
/* Compares wgmma with mma.sync, for devices with is_wgmma. Both instructions compute
 * one convolution and one input gradient with everything that their epilogues form, a
 * convolution with each of the tiles that use weights loaded by a cluster, and a weight
 * gradient. SP_EDEVICE names the quantity that deviates. Local; some milliseconds. */
sp_status sp_selftest_wgmma(sp_backend *device);

#endif
