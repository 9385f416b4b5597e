/* The CUDA runtime over the pretend driver: preloaded, so that torch's libraries find it before the real one.
 *
 * As the real runtime does, it opens libcuda.so.1 and starts the driver at its first call; where that fails it closes the
 * library again and repeats that first error for the life of the process. Copies are memmove; kernels do nothing.
 */
#include "pretend.h"

#define FROM_DRIVER(X) \
    X(int, cuInit, (unsigned)) X(int, cuDriverGetVersion, (int *)) X(int, cuDeviceGetAttribute, (int *, int, int)) \
    X(int, cuDeviceGetName, (char *, int, int)) X(int, cuDeviceGetUuid_v2, (unsigned char *, int)) \
    X(int, cuDeviceTotalMem_v2, (size_t *, int)) X(int, cuDeviceGetPCIBusId, (char *, int, int)) \
    X(int, cuDeviceGetByPCIBusId, (int *, const char *)) X(int, cuDevicePrimaryCtxRetain, (void **, int)) \
    X(int, cuDevicePrimaryCtxReset_v2, (int)) X(int, cuCtxGetDevice, (int *)) X(int, cuCtxSetCurrent, (void *)) \
    X(int, cuMemAlloc_v2, (void **, size_t)) X(int, cuMemFree_v2, (void *)) X(int, cuMemHostAlloc, (void **, size_t, unsigned)) \
    X(int, cuMemFreeHost, (void *)) X(int, cuMemGetInfo_v2, (size_t *, size_t *)) X(int, pretend_count, (void)) \
    X(int, pretend_gpu, (int)) X(int, pretend_pointer, (const void *, int *)) X(int, pretend_launch, (void))
#define POINTER(type, name, arguments) static type (*name) arguments;
FROM_DRIVER(POINTER)

typedef struct { int device, priority; } stream;
typedef struct { int recorded; struct timespec when; } event;

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static int tried, start_error, found_version;
static void *library;
static __thread int current, last_error;

static int fail(int code) { if (code) last_error = code; return code; }

static int open_driver(void)
{
    library = dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL);
    if (!library) return INSUFFICIENT_DRIVER;
#define FIND(type, name, arguments) if (!(*(void **)&name = dlsym(library, #name))) return 999;
    FROM_DRIVER(FIND)
    if (!dlsym(library, "cuDeviceGetCount")) return 999;
    cuDriverGetVersion(&found_version);
    /* The driver must be of the runtime's major version at least: https://docs.nvidia.com/deploy/cuda-compatibility/ */
    if (found_version / 1000 < version_setting("PRETEND_RUNTIME_VERSION", 13000) / 1000) return INSUFFICIENT_DRIVER;
    return cuInit(0);
}

/* Start the driver, or repeat what came of the first attempt. */
static int start(void)
{
    if (!tried) {
        pthread_mutex_lock(&lock);
        if (!tried) {
            start_error = open_driver();
            if (start_error && library) { dlclose(library); library = NULL; }
            tried = 1;
        }
        pthread_mutex_unlock(&lock);
    }
    if (start_error) return start_error;
    return pretend_count() < 0 ? NOT_INITIALIZED : OK;         /* a child of a process that had started it */
}

#define NEEDS_DRIVER() do { int error_ = start(); if (error_) return fail(error_); } while (0)
#define NEEDS_DEVICE(d) do { NEEDS_DRIVER(); if ((d) < 0 || (d) >= pretend_count()) return fail(INVALID_DEVICE); } while (0)
#define NEEDS_CONTEXT() do { int error_ = use_context(); if (error_) return fail(error_); } while (0)

static int ordinal(void) { int d; return cuCtxGetDevice(&d) ? current : d; }

static int use_context(void)
{
    void *context;
    int error = start(), d;
    if (error) return error;
    if (!cuCtxGetDevice(&d)) return OK;
    error = cuDevicePrimaryCtxRetain(&context, current);
    return error ? error : cuCtxSetCurrent(context);
}

/* ---- devices ---- */

int cudaGetDeviceCount(int *n) { if (!n) return fail(INVALID_VALUE); *n = 0; NEEDS_DRIVER(); *n = pretend_count(); return OK; }
int cudaGetDevice(int *d) { NEEDS_DRIVER(); *d = ordinal(); return OK; }

int cudaSetDevice(int d)
{
    void *context;
    NEEDS_DEVICE(d);
    int error = cuDevicePrimaryCtxRetain(&context, d);
    if (error) return fail(error);
    current = d;
    cuCtxSetCurrent(context);
    trace("set", pretend_gpu(d));
    return OK;
}

int cudaDriverGetVersion(int *version)
{
    int error = start();                                       /* it starts the driver, and answers whatever came of it */
    *version = error && !found_version ? 0 : found_version;
    return OK;
}
int cudaRuntimeGetVersion(int *version) { *version = version_setting("PRETEND_RUNTIME_VERSION", 13000); return OK; }
int cudaGetLastError(void) { int e = last_error; last_error = 0; return e; }
int cudaPeekAtLastError(void) { return last_error; }
int cudaDeviceSynchronize(void) { NEEDS_CONTEXT(); return OK; }
int cudaDeviceReset(void) { NEEDS_DRIVER(); return cuDevicePrimaryCtxReset_v2(ordinal()); }
int cudaDeviceGetAttribute(int *value, int attribute, int d) { NEEDS_DEVICE(d); return fail(cuDeviceGetAttribute(value, attribute, d)); }
int cudaDeviceGetPCIBusId(char *out, int size, int d) { NEEDS_DEVICE(d); return fail(cuDeviceGetPCIBusId(out, size, d)); }
int cudaDeviceGetByPCIBusId(int *d, const char *address) { NEEDS_DRIVER(); return fail(cuDeviceGetByPCIBusId(d, address)); }
int cudaDeviceGetStreamPriorityRange(int *low, int *high) { NEEDS_DRIVER(); *low = 0; *high = -5; return OK; }
int cudaDeviceCanAccessPeer(int *can, int a, int b) { NEEDS_DEVICE(a); NEEDS_DEVICE(b); *can = a != b; return OK; }
int cudaDeviceEnablePeerAccess(int peer, unsigned flags) { (void)flags; NEEDS_DEVICE(peer); return OK; }
int cudaThreadExchangeStreamCaptureMode(int *mode) { *mode = 0; return OK; }

/* cudaDeviceProp of CUDA 13 and of CUDA 12 (whose function has the suffix _v2), by offsets: test_pretend_torch.py compares
 * the former with NVIDIA's own header, where torch's wheels brought one. */
enum { PROPERTIES_SIZE = 1008 };
typedef struct { int total, constant, major, processors, bus, l2, threads, shared_sm, registers_sm, shared_optin, blocks_sm; } layout;
static const layout CUDA_13 = {288, 352, 360, 384, 568, 596, 604, 624, 632, 672, 688};
static const layout CUDA_12 = {288, 352, 360, 388, 584, 616, 624, 640, 648, 696, 712};

static int properties(char *p, int d, const layout *at)
{
    NEEDS_DEVICE(d);
    memset(p, 0, PROPERTIES_SIZE);
#define PUT(type, offset, value) do { type value_ = (type)(value); memcpy(p + (offset), &value_, sizeof value_); } while (0)
#define PUT_ATTRIBUTE(type, offset, attribute) do { int found_ = 0; cuDeviceGetAttribute(&found_, attribute, d); PUT(type, offset, found_); } while (0)
    size_t total;
    cuDeviceGetName(p, 256, d);
    cuDeviceGetUuid_v2((unsigned char *)p + 256, d);
    cuDeviceTotalMem_v2(&total, d);
    PUT(size_t, at->total, total);
    PUT_ATTRIBUTE(size_t, 296, 8);
    PUT_ATTRIBUTE(int, 304, 12);
    PUT_ATTRIBUTE(int, 308, 10);
    PUT(size_t, 312, 2147483647);
    PUT_ATTRIBUTE(int, 320, 1);
    for (int i = 0; i < 3; i++) { PUT_ATTRIBUTE(int, 324 + 4 * i, 2 + i); PUT_ATTRIBUTE(int, 336 + 4 * i, 5 + i); }
    PUT_ATTRIBUTE(size_t, at->constant, 9);
    PUT_ATTRIBUTE(int, at->major, 75);
    PUT_ATTRIBUTE(int, at->major + 4, 76);
    PUT_ATTRIBUTE(int, at->processors, 16);
    PUT_ATTRIBUTE(int, at->bus, 33);
    PUT_ATTRIBUTE(int, at->l2, 38);
    PUT_ATTRIBUTE(int, at->threads, 39);
    PUT_ATTRIBUTE(size_t, at->shared_sm, 81);
    PUT_ATTRIBUTE(int, at->registers_sm, 82);
    PUT_ATTRIBUTE(size_t, at->shared_optin, 97);
    PUT_ATTRIBUTE(int, at->blocks_sm, 106);
    return OK;
}
int cudaGetDeviceProperties(void *p, int d) { return properties(p, d, &CUDA_13); }
int cudaGetDeviceProperties_v2(void *p, int d) { return properties(p, d, &CUDA_12); }

/* ---- memory ---- */

int cudaMalloc(void **p, size_t size)
{
    NEEDS_CONTEXT();
    *p = NULL;
    return size ? fail(cuMemAlloc_v2(p, size)) : OK;
}
int cudaMallocAsync(void **p, size_t size, void *s) { (void)s; return cudaMalloc(p, size); }
int cudaFree(void *p) { NEEDS_CONTEXT(); return fail(cuMemFree_v2(p)); }
int cudaFreeAsync(void *p, void *s) { (void)s; return cudaFree(p); }
int cudaHostAlloc(void **p, size_t size, unsigned flags) { NEEDS_CONTEXT(); return fail(cuMemHostAlloc(p, size, flags)); }
int cudaMallocHost(void **p, size_t size) { return cudaHostAlloc(p, size, 0); }
int cudaFreeHost(void *p) { NEEDS_DRIVER(); return fail(cuMemFreeHost(p)); }
int cudaHostRegister(void *p, size_t size, unsigned flags) { (void)p; (void)size; (void)flags; NEEDS_CONTEXT(); return OK; }
int cudaHostUnregister(void *p) { (void)p; NEEDS_DRIVER(); return OK; }
int cudaMemGetInfo(size_t *left, size_t *total) { NEEDS_CONTEXT(); return fail(cuMemGetInfo_v2(left, total)); }
int cudaMemset(void *p, int value, size_t size) { NEEDS_CONTEXT(); memset(p, value, size); return OK; }
int cudaMemsetAsync(void *p, int value, size_t size, void *s) { (void)s; return cudaMemset(p, value, size); }
int cudaMemcpy(void *to, const void *from, size_t size, int kind) { (void)kind; NEEDS_CONTEXT(); memmove(to, from, size); return OK; }
int cudaMemcpyAsync(void *to, const void *from, size_t size, int kind, void *s) { (void)s; return cudaMemcpy(to, from, size, kind); }
int cudaMemcpyPeerAsync(void *to, int d, const void *from, int e, size_t size, void *s) { (void)d; (void)e; (void)s; return cudaMemcpy(to, from, size, 0); }
int cudaMemcpyPeer(void *to, int d, const void *from, int e, size_t size) { return cudaMemcpyPeerAsync(to, d, from, e, size, NULL); }

int cudaMemcpy2DAsync(char *to, size_t to_pitch, const char *from, size_t from_pitch, size_t width, size_t height, int kind, void *s)
{
    (void)kind; (void)s;
    NEEDS_CONTEXT();
    for (size_t row = 0; row < height; row++) memmove(to + row * to_pitch, from + row * from_pitch, width);
    return OK;
}

int cudaPointerGetAttributes(void *attributes, const void *p)
{
    struct { int type, device; const void *on_device, *on_host; } *out = attributes;
    int d = -1, kind;
    NEEDS_DRIVER();
    kind = pretend_pointer(p, &d);
    out->type = kind;
    out->device = kind ? d : -2;
    out->on_device = kind ? p : NULL;
    out->on_host = kind == 2 ? NULL : p;
    return OK;
}

int cudaGetSymbolAddress(void **p, const void *symbol) { static char somewhere[4096]; (void)symbol; NEEDS_CONTEXT(); *p = somewhere; return OK; }
int cudaMemcpyToSymbol(const void *symbol) { (void)symbol; NEEDS_CONTEXT(); return OK; }

/* ---- streams and events: everything has happened by the time a call returns ---- */

int cudaStreamCreateWithPriority(stream **out, unsigned flags, int priority)
{
    (void)flags;
    NEEDS_CONTEXT();
    if (!(*out = malloc(sizeof **out))) return fail(OUT_OF_MEMORY);
    **out = (stream){ordinal(), priority < -5 ? -5 : priority > 0 ? 0 : priority};
    return OK;
}
int cudaStreamCreateWithFlags(stream **out, unsigned flags) { return cudaStreamCreateWithPriority(out, flags, 0); }
int cudaStreamCreate(stream **out) { return cudaStreamCreateWithPriority(out, 0, 0); }
int cudaStreamDestroy(stream *s) { NEEDS_DRIVER(); free(s); return OK; }
int cudaStreamGetPriority(stream *s, int *priority) { NEEDS_DRIVER(); *priority = (uintptr_t)s > 2 ? s->priority : 0; return OK; }
int cudaStreamQuery(stream *s) { (void)s; NEEDS_CONTEXT(); return OK; }
int cudaStreamSynchronize(stream *s) { (void)s; NEEDS_CONTEXT(); return OK; }
int cudaStreamWaitEvent(stream *s) { (void)s; NEEDS_CONTEXT(); return OK; }
int cudaStreamIsCapturing(stream *s, int *status) { (void)s; *status = 0; return OK; }
int cudaStreamGetCaptureInfo(stream *s, int *status) { (void)s; *status = 0; return OK; }
int cudaStreamGetCaptureInfo_v2(stream *s, int *status) { (void)s; *status = 0; return OK; }
int cudaStreamGetCaptureInfo_v3(stream *s, int *status) { (void)s; *status = 0; return OK; }
int cudaLaunchHostFunc(stream *s, void (*function)(void *), void *data) { (void)s; NEEDS_CONTEXT(); function(data); return OK; }
int cudaStreamAddCallback(stream *s, void (*function)(stream *, int, void *), void *data) { NEEDS_CONTEXT(); function(s, OK, data); return OK; }

int cudaEventCreateWithFlags(event **out, unsigned flags)
{
    (void)flags;
    NEEDS_CONTEXT();
    return (*out = calloc(1, sizeof **out)) ? OK : fail(OUT_OF_MEMORY);
}
int cudaEventCreate(event **out) { return cudaEventCreateWithFlags(out, 0); }
int cudaEventDestroy(event *e) { NEEDS_DRIVER(); free(e); return OK; }
int cudaEventRecord(event *e) { NEEDS_CONTEXT(); e->recorded = 1; clock_gettime(CLOCK_MONOTONIC, &e->when); return OK; }
int cudaEventRecordWithFlags(event *e) { return cudaEventRecord(e); }
int cudaEventQuery(event *e) { (void)e; NEEDS_DRIVER(); return OK; }
int cudaEventSynchronize(event *e) { (void)e; NEEDS_DRIVER(); return OK; }
int cudaEventElapsedTime(float *ms, event *a, event *b)
{
    NEEDS_DRIVER();
    if (!a->recorded || !b->recorded) return fail(INVALID_HANDLE);
    *ms = (float)((double)(b->when.tv_sec - a->when.tv_sec) * 1e3 + (double)(b->when.tv_nsec - a->when.tv_nsec) / 1e6);
    return OK;
}
int cudaEventElapsedTime_v2(float *ms, event *a, event *b) { return cudaEventElapsedTime(ms, a, b); }

/* ---- kernels ---- */

static int launch(void)
{
    NEEDS_CONTEXT();
    int error = pretend_launch();
    if (!error) trace("launch", pretend_gpu(ordinal()));
    return fail(error);
}
int cudaLaunchKernel(void) { return launch(); }
int cudaLaunchKernelExC(void) { return launch(); }
int cudaLaunchCooperativeKernel(void) { return launch(); }
int __cudaLaunchKernel(void) { return launch(); }              /* what CUDA 13's compiler calls for <<<...>>> */
char __cudaInitModule(void **module) { (void)module; return 1; }
int __cudaGetKernel(const void **kernel, const void *function) { *kernel = function; return OK; }
int cudaFuncSetAttribute(void) { NEEDS_CONTEXT(); return fail(pretend_launch()); }
int cudaOccupancyMaxActiveBlocksPerMultiprocessor(int *n) { NEEDS_CONTEXT(); *n = 1; return OK; }
int cudaOccupancyMaxActiveBlocksPerMultiprocessorWithFlags(int *n) { NEEDS_CONTEXT(); *n = 1; return OK; }

int cudaFuncGetAttributes(void *attributes)
{
    struct { size_t shared, constant, local; int threads, registers, ptx, binary, cache, most_shared, carveout; } *out = attributes;
    int major, minor, error;
    NEEDS_CONTEXT();
    if ((error = pretend_launch())) return fail(error);
    memset(out, 0, sizeof *out);
    cuDeviceGetAttribute(&major, 75, ordinal());
    cuDeviceGetAttribute(&minor, 76, ordinal());
    out->threads = 1024, out->registers = 32, out->ptx = out->binary = 10 * major + minor, out->most_shared = 49152;
    return OK;
}

/* A question for a driver function by name: what the pretend driver has, or "there is no such function". */
int cudaGetDriverEntryPointByVersion(const char *name, void **function, unsigned version, unsigned long long flags, int *status)
{
    (void)version; (void)flags;
    NEEDS_DRIVER();
    *function = dlsym(library, name);
    if (status) *status = !*function;
    return OK;
}
int cudaGetDriverEntryPoint(const char *name, void **function, unsigned long long flags, int *status)
{
    return cudaGetDriverEntryPointByVersion(name, function, 0, flags, status);
}

#define REFUSES(name) int name(void) { NEEDS_DRIVER(); return fail(NOT_SUPPORTED); }
REFUSES(cudaGraphAddNode) REFUSES(cudaGraphConditionalHandleCreate) REFUSES(cudaGraphDestroy) REFUSES(cudaGraphExecDestroy)
REFUSES(cudaGraphGetNodes) REFUSES(cudaGraphInstantiateWithFlags) REFUSES(cudaGraphLaunch) REFUSES(cudaGraphNodeGetDependencies)
REFUSES(cudaGraphRetainUserObject) REFUSES(cudaIpcCloseMemHandle) REFUSES(cudaIpcGetEventHandle) REFUSES(cudaIpcGetMemHandle)
REFUSES(cudaIpcOpenEventHandle) REFUSES(cudaIpcOpenMemHandle) REFUSES(cudaKernelSetAttributeForDevice) REFUSES(cudaLibraryGetKernel)
REFUSES(cudaLibraryLoadData) REFUSES(cudaLibraryUnload) REFUSES(cudaStreamBeginCapture) REFUSES(cudaStreamBeginCaptureToGraph)
REFUSES(cudaStreamEndCapture) REFUSES(cudaStreamUpdateCaptureDependencies) REFUSES(cudaUserObjectCreate) REFUSES(cudaUserObjectRelease)
REFUSES(cudaDeviceGetDefaultMemPool) REFUSES(cudaDeviceGetGraphMemAttribute) REFUSES(cudaDeviceSetGraphMemAttribute)
REFUSES(cudaMemPoolGetAttribute) REFUSES(cudaMemPoolSetAccess) REFUSES(cudaMemPoolSetAttribute) REFUSES(cudaMemPoolTrimTo)
REFUSES(cudaProfilerStart) REFUSES(cudaProfilerStop)

/* ---- errors, in the words of the real runtime: torch shows them ---- */

static const struct { int code; const char *name, *text; } ERRORS[] = {
    {0, "cudaSuccess", "no error"}, {1, "cudaErrorInvalidValue", "invalid argument"},
    {2, "cudaErrorMemoryAllocation", "out of memory"}, {3, "cudaErrorInitializationError", "initialization error"},
    {34, "cudaErrorStubLibrary", "CUDA driver is a stub library"},
    {35, "cudaErrorInsufficientDriver", "CUDA driver version is insufficient for CUDA runtime version"},
    {36, "cudaErrorCallRequiresNewerDriver", "API call is not supported in the installed CUDA driver"},
    {46, "cudaErrorDevicesUnavailable", "CUDA-capable device(s) is/are busy or unavailable"},
    {100, "cudaErrorNoDevice", "no CUDA-capable device is detected"}, {101, "cudaErrorInvalidDevice", "invalid device ordinal"},
    {102, "cudaErrorDeviceNotLicensed", "device doesn't have valid Grid license"},
    {127, "cudaErrorStartupFailure", "startup failure in cuda runtime"}, {201, "cudaErrorDeviceUninitialized", "invalid device context"},
    {209, "cudaErrorNoKernelImageForDevice", "no kernel image is available for execution on the device"},
    {214, "cudaErrorECCUncorrectable", "uncorrectable ECC error encountered"},
    {304, "cudaErrorOperatingSystem", "OS call failed or operation not supported on this OS"},
    {400, "cudaErrorInvalidResourceHandle", "invalid resource handle"}, {500, "cudaErrorSymbolNotFound", "named symbol not found"},
    {600, "cudaErrorNotReady", "device not ready"}, {700, "cudaErrorIllegalAddress", "an illegal memory access was encountered"},
    {710, "cudaErrorAssert", "device-side assert triggered"}, {719, "cudaErrorLaunchFailure", "unspecified launch failure"},
    {800, "cudaErrorNotPermitted", "operation not permitted"}, {801, "cudaErrorNotSupported", "operation not supported"},
    {802, "cudaErrorSystemNotReady", "system not yet initialized"},
    {803, "cudaErrorSystemDriverMismatch", "system has unsupported display driver / cuda driver combination"},
    {804, "cudaErrorCompatNotSupportedOnDevice", "forward compatibility was attempted on non supported HW"},
    {999, "cudaErrorUnknown", "unknown error"},
};

const char *cudaGetErrorString(int code)
{
    start();                                                   /* even this question starts the driver */
    for (size_t i = 0; i < sizeof ERRORS / sizeof *ERRORS; i++) if (ERRORS[i].code == code) return ERRORS[i].text;
    return "unrecognized error code";
}
const char *cudaGetErrorName(int code)
{
    start();
    for (size_t i = 0; i < sizeof ERRORS / sizeof *ERRORS; i++) if (ERRORS[i].code == code) return ERRORS[i].name;
    return "unrecognized error code";
}
