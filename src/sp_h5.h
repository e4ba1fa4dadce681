/* HDF5, and nothing else of it elsewhere: the only module that includes hdf5.h. Every call
 * holds one lock, because HDF5 here is not thread-safe. Failures carry the library's text.
 */
#ifndef SP_H5_H
#define SP_H5_H

#include "sp_error.h"

#endif
