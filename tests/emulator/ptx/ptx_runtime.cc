/* Stands for the CUDA runtime in programs with objects that nvcc compiled: it finds
 * kernels by name among the translated ones and launches them on the emulator. */
#include "emulator/ptx/ptx.h"

#include <map>
#include <string>

typedef std::map<std::string, const ptx_kernel *> kernel_table;
typedef std::map<const void *, const ptx_kernel *> host_table;

static kernel_table &kernels()
{
    static kernel_table *const all = new kernel_table();

    return *all;
}

static host_table &host_functions()
{
    static host_table *const all = new host_table();

    return *all;
}

/* The configuration between the two halves of a launch. */
static struct pending {
    dim3 grid, block;
    size_t shared_bytes;
    cudaStream_t stream;
} launch;

void ptx_register(const ptx_kernel *kernel)
{
    kernels()[kernel->name] = kernel;
}

void ptx_check_aligned(uintptr_t p, size_t bytes, const char *file, int line)
{
    if (p % bytes)
        hc_fail("%s:%d: %p is not aligned to %zu bytes", file, line, (void *)p, bytes);
}

struct ptx_call {
    const ptx_kernel *kernel;
    alignas(16) char parameters[4096];
};

static void invoke(const void *call)
{
    const ptx_call *c = static_cast<const ptx_call *>(call);

    sp_reads_ahead(); /* PTX does not say which kernels do (sp_cuda.h) */
    c->kernel->run(c->parameters);
}

extern "C" {

/* ---- what nvcc writes into every object ---- */

void **__cudaRegisterFatBinary(void *)
{
    static void *handle;

    return &handle;
}

void __cudaRegisterFatBinaryEnd(void **) {}

void __cudaUnregisterFatBinary(void **) {}

/* Constants are in the translated kernels. */
void __cudaRegisterVar(void **, char *, char *, const char *, int, size_t, int, int) {}

/* The translated kernels registered before: their objects are linked first. */
void __cudaRegisterFunction(void **, const char *host, char *, const char *name, int,
                            void *, void *, void *, void *, int *)
{
    const kernel_table::const_iterator k = kernels().find(name);

    if (k != kernels().end())
        host_functions()[host] = k->second;
    else
        fprintf(stderr, "no translated kernel %s\n", name);
}

unsigned __cudaPushCallConfiguration(dim3 grid, dim3 block, size_t shared_bytes,
                                     void *stream)
{
    launch = {grid, block, shared_bytes, (cudaStream_t)stream};
    return 0;
}

int __cudaPopCallConfiguration(dim3 *grid, dim3 *block, size_t *shared_bytes,
                               void *stream)
{
    *grid = launch.grid;
    *block = launch.block;
    *shared_bytes = launch.shared_bytes;
    *(cudaStream_t *)stream = launch.stream;
    return 0;
}

int __cudaGetKernel(const void **kernel, const void *host)
{
    *kernel = host;
    return 0;
}

static int launch_kernel(const void *host, dim3 grid, dim3 block, void **arguments,
                         size_t shared_bytes, cudaStream_t stream, bool is_early,
                         unsigned cluster)
{
    const host_table::const_iterator k = host_functions().find(host);
    const std::shared_ptr<ptx_call> call = std::make_shared<ptx_call>();

    if (k == host_functions().end())
        return 98; /* cudaErrorInvalidDeviceFunction */
    if (k->second->most_threads &&
        block.x * block.y * block.z > (unsigned)k->second->most_threads)
        return hc_remember(cudaErrorInvalidValue);
    call->kernel = k->second;
    for (int i = 0; i < k->second->n_parameters; i++)
        memcpy(call->parameters + k->second->parameter[i].at, arguments[i],
               (size_t)k->second->parameter[i].bytes);
    hc_submit({k->second->name, host, grid, block, shared_bytes, invoke, call,
               offsetof(ptx_call, parameters) + (size_t)k->second->bytes, is_early,
               cluster, 0, 0, true},
              stream);
    return 0;
}

int __cudaLaunchKernel(const void *host, dim3 grid, dim3 block, void **arguments,
                       size_t shared_bytes, cudaStream_t stream)
{
    return launch_kernel(host, grid, block, arguments, shared_bytes, stream, false, 1);
}

/* An attribute of a launch: cudaLaunchAttribute. */
struct launch_attribute {
    enum { CLUSTER = 4, EARLY = 6 };
    int id, unused;
    union {
        char bytes[64];
        int is_early;
        struct {
            unsigned x, y, z;
        } cluster;
    } value;
};

/* The first fields of cudaLaunchConfig_t; its attributes are those of
 * cuda/device/sp_cuda.h. */
struct launch_config {
    dim3 grid, block;
    size_t shared_bytes;
    cudaStream_t stream;
    const launch_attribute *attribute;
    unsigned n_attributes;
};

int cudaLaunchKernelExC(const launch_config *c, const void *host, void **arguments)
{
    unsigned cluster = 1;
    bool is_early = false;

    for (unsigned i = 0; i < c->n_attributes; i++) {
        const launch_attribute &a = c->attribute[i];
        is_early = is_early || (a.id == launch_attribute::EARLY && a.value.is_early);
        cluster = a.id == launch_attribute::CLUSTER ? a.value.cluster.x : cluster;
    }
    return launch_kernel(host, c->grid, c->block, arguments, c->shared_bytes, c->stream,
                         is_early, cluster);
}

int cudaLaunchKernel(const void *host, dim3 grid, dim3 block, void **arguments,
                     size_t shared_bytes, cudaStream_t stream)
{
    return __cudaLaunchKernel(host, grid, block, arguments, shared_bytes, stream);
}

/* ---- the runtime's calls that the emulator's header has under other names ---- */

int cudaFuncSetAttribute(const void *host, int attribute, int value)
{
    enum { MAX_DYNAMIC_SHARED = 8 };

    return attribute == MAX_DYNAMIC_SHARED ? hc_allow_shared(host, value) : 0;
}

/* CUB asks for this number, and chooses tile sizes by it. */
int cudaOccupancyMaxActiveBlocksPerMultiprocessorWithFlags(int *n, const void *, int,
                                                           size_t, unsigned)
{
    *n = 2;
    return 0;
}

int cudaPeekAtLastError()
{
    return 0;
}
}
