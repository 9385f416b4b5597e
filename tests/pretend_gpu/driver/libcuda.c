/* libcuda.so.1 of a machine that has none: the driver.
 *
 * The mask and the order are read by cuInit, with getenv, once; a cuInit that fails leaves everything as it was and may be
 * tried again; a child forked after a cuInit that succeeded gets "not initialised" from every call, cuInit included.
 * Device memory is host memory, filled with zeros. Kernels do nothing.
 */
#include "pretend.h"

typedef struct context { int ordinal, made; } context;
typedef struct allocation { struct allocation *next; char *start; size_t size; int gpu, kind; } allocation;
enum { HOST = 1, ON_DEVICE = 2, MAX_STACK = 8 };

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static int initialised, owner, count;
static device visible[MAX_GPUS];
static context contexts[MAX_GPUS];
static allocation *allocations;
static __thread context *stack[MAX_STACK];
static __thread int depth;

static int awake(void) { return initialised && owner == (int)getpid(); }

/* ---- the mask ---- */

/* CUDA's order of the GPUs it can use: by bus address, or fastest first; returns how many. */
static int in_cuda_order(int *out)
{
    int n = gpu_count(), k = 0;
    char seen[MAX_GPUS] = {0};
    if (!setting_is("CUDA_DEVICE_ORDER", "PCI_BUS_ID"))
        for (const char *p = getenv("PRETEND_GPU_FASTEST"); p && *p; p = next_entry(p)) {
            long gpu = strtol(p, NULL, 10);
            if (gpu >= 0 && gpu < n && !seen[gpu]) seen[gpu] = 1, out[k++] = (int)gpu;
        }
    for (int gpu = 0; gpu < n; gpu++) if (!seen[gpu]) out[k++] = gpu;
    int kept = 0;
    for (int i = 0; i < k; i++) if (!is_lost(out[i]) && !is_forbidden(out[i])) out[kept++] = out[i];
    return kept;
}

/* What the driver enumerates of the devices that were named: MIG has the last word. Returns how many. */
static int enumerate(const device *named, int n, device *out)
{
    device all[MAX_GPUS];
    int k = 0, instances = 0;
    for (int i = 0; i < n && k < MAX_GPUS; i++) {
        if (named[i].gi >= 0) { all[k++] = named[i]; continue; }
        if (!mig_mode(named[i].gpu)) { all[k++] = named[i]; continue; }
        device found[MAX_MIG_DEVICES];
        int m = mig_devices(named[i].gpu, found, MAX_MIG_DEVICES);
        for (int j = 0; j < m && k < MAX_GPUS; j++) if (found[j].gi >= 0) all[k++] = found[j];
    }
    int kept = 0;
    for (int i = 0; i < k; i++) {
        if (all[i].gi < 0) { out[kept++] = all[i]; continue; }
        int same = 0;                                         /* one compute instance of each GPU instance */
        for (int j = 0; j < kept; j++) same |= out[j].gpu == all[i].gpu && out[j].gi == all[i].gi;
        if (same || instances == MAX_MIG_DEVICES) continue;
        instances++;
        out[kept++] = all[i];
    }
    if (instances && driver_release() < 570) {                /* older drivers: one instance, and no whole GPU beside it */
        for (int i = 0; i < kept; i++) if (out[i].gi >= 0) { out[0] = out[i]; break; }
        return 1;
    }
    return kept;
}

static int same_start(const char *text, const char *start, size_t length)
{
    return !(has_rule("uuid-case") ? strncasecmp(text, start, length) : strncmp(text, start, length));
}

/* The one device whose name begins with this entry: 1 found, 0 none or several. */
static int by_uuid(const char *entry, size_t length, const int *gpus, int n, device *out)
{
    char id[UUID_SIZE];
    int hits = 0, gi, ci;
    const char *slash = memchr(entry, '/', length);
    if (slash && same_start(entry, "MIG-GPU-", 8)) {          /* the older spelling: MIG-<GPU's UUID>/<GI>/<CI> */
        if (sscanf(slash, "/%d/%d", &gi, &ci) != 2) return 0;
        entry += 4, length = (size_t)(slash - entry);
    } else slash = NULL;
    for (int i = 0; i < n; i++) {
        device found[MAX_MIG_DEVICES + 1] = {{gpus[i], WHOLE, WHOLE}};
        int m = 1 + mig_devices(gpus[i], found + 1, MAX_MIG_DEVICES), of_parent = 0;
        for (int j = 0; j < m; j++) {
            if (found[j].gi == HOLE) continue;
            if (slash) {
                if (j == 0) { uuid_text(found[0], id); of_parent = same_start(id, entry, length); }
                else if (of_parent && found[j].gi == gi && found[j].ci == ci) *out = found[j], hits++;
                continue;
            }
            uuid_text(found[j], id);
            if (length < UUID_SIZE && same_start(id, entry, length)) *out = found[j], hits++;
        }
    }
    return hits == 1;
}

/* Ordinals by strtol: blanks before, a sign, anything behind. A negative one ends the list, as does one that is too large. */
static int by_ordinals(const char *p, const device *all, int n, device *out)
{
    long seen[MAX_GPUS];
    int k = 0, ended = 0, values = 0;
    for (; p; p = next_entry(p)) {
        char *end;
        long value = strtol(p, &end, has_rule("base-0") ? 0 : 10);
        if (end == p || memchr(p, ',', (size_t)(end - p)) || value < 0) break;
        for (int i = 0; i < values; i++) if (seen[i] == value) return 0;
        ended |= value >= n;
        if (ended && has_rule("late-repeats")) break;         /* then a repetition behind the end would not count */
        if (values < MAX_GPUS) seen[values++] = value;
        if (!ended && k < MAX_GPUS) out[k++] = all[value];
    }
    return k;
}

static int by_uuids(const char *p, const int *gpus, int n, device *out)
{
    const char *first = p;
    int k = 0, ended = 0, mig = same_start(p, "MIG-", 4);
    for (; p; p = next_entry(p)) {
        const char *entry = p;
        if (has_rule("uuid-blanks")) p += strspn(p, " \t\n\r\f\v");
        size_t length = strcspn(p, ",");
        while (has_rule("uuid-blanks") && length && strchr(" \t\n\r\f\v", p[length - 1])) length--;
        int is_mig = same_start(p, "MIG-", 4);
        if (!is_mig && !same_start(p, "GPU-", 4)) break;
        if (is_mig != mig && driver_release() < 570) break;
        for (const char *q = first; q < entry && !has_rule("late-repeats"); q = next_entry(q))
            if (strcspn(q, ",") == length && !strncmp(q, p, length)) return 0;
        device found;
        if (ended || !by_uuid(p, length, gpus, n, &found)) {
            ended = 1;
            if (has_rule("late-repeats")) break;
            continue;
        }
        for (int i = 0; i < k; i++) if (!memcmp(&out[i], &found, sizeof found)) return 0;
        if (k < MAX_GPUS) out[k++] = found;
    }
    return k;
}

/* The devices that this process will see; returns how many. */
static int read_mask(device *out)
{
    const char *mask = getenv("CUDA_VISIBLE_DEVICES");
    int gpus[MAX_GPUS], n = in_cuda_order(gpus), k = n;
    device whole[MAX_GPUS], named[MAX_GPUS];
    for (int i = 0; i < n; i++) whole[i] = (device){gpus[i], WHOLE, WHOLE};
    if (!mask) return enumerate(whole, n, out);
    if (has_rule("uuid-blanks")) mask += strspn(mask, " \t\n\r\f\v");
    if (same_start(mask, "GPU-", 4) || same_start(mask, "MIG-", 4)) k = by_uuids(mask, gpus, n, named);
    else {
        if (has_rule("mig-ordinals")) n = enumerate(whole, n, whole);
        k = by_ordinals(mask, whole, n, named);
    }
    return enumerate(named, k, out);
}

static void hang(void) { for (;;) sleep(1); }

static void wait_seconds(const char *text)
{
    double seconds = text ? strtod(text, NULL) : 0;
    struct timespec pause = {(time_t)seconds, (long)((seconds - (double)(time_t)seconds) * 1e9)};
    if (seconds > 0) nanosleep(&pause, NULL);
}

int cuInit(unsigned flags)
{
    if (initialised) return awake() ? OK : NOT_INITIALIZED;
    if (flags) return INVALID_VALUE;
    if (setting("PRETEND_DRIVER_HANG", 0)) { trace("hang", -1); hang(); }
    wait_seconds(getenv("PRETEND_DRIVER_SLOW"));
    int error = (int)setting("PRETEND_DRIVER_ERROR", 0);
    if (error) { trace("init-failed", error); return error; }
    pthread_mutex_lock(&lock);
    if (!initialised) {
        count = read_mask(visible);
        trace("init", count);
        if (count) {
            for (int i = 0; i < count; i++) contexts[i] = (context){i, 0};
            owner = (int)getpid();
            initialised = 1;
        }
    }
    pthread_mutex_unlock(&lock);
    return initialised ? OK : NO_DEVICE;
}

/* ---- questions that need no context ---- */

#define NEEDS_DRIVER() do { if (!awake()) return NOT_INITIALIZED; } while (0)
#define NEEDS_DEVICE(d) do { NEEDS_DRIVER(); if ((d) < 0 || (d) >= count) return INVALID_DEVICE; } while (0)
#define NEEDS_CONTEXT() do { NEEDS_DRIVER(); if (!depth || !stack[depth - 1]) return 201; } while (0)

int cuDriverGetVersion(int *version) { if (!version) return INVALID_VALUE; *version = driver_cuda_version(); return OK; }

#ifndef WITHOUT_DEVICE_COUNT
int cuDeviceGetCount(int *n) { NEEDS_DRIVER(); if (!n) return INVALID_VALUE; *n = count; return OK; }
#endif
int pretend_count(void) { return awake() ? count : -1; }
int pretend_gpu(int ordinal) { return visible[ordinal].gpu; }

int cuDeviceGet(int *d, int ordinal) { NEEDS_DEVICE(ordinal); *d = ordinal; return OK; }
int cuDeviceGetName(char *out, int size, int d) { NEEDS_DEVICE(d); device_name(visible[d], out, (size_t)size); return OK; }
int cuDeviceTotalMem_v2(size_t *bytes, int d) { NEEDS_DEVICE(d); *bytes = device_total(visible[d]); return OK; }
int cuDeviceGetUuid_v2(unsigned char *out, int d) { NEEDS_DEVICE(d); uuid_bytes(visible[d], out); return OK; }

/* The older question answers with the GPU that an instance is part of. */
int cuDeviceGetUuid(unsigned char *out, int d)
{
    NEEDS_DEVICE(d);
    uuid_bytes((device){visible[d].gpu, WHOLE, WHOLE}, out);
    return OK;
}

int cuDeviceGetPCIBusId(char *out, int size, int d)
{
    NEEDS_DEVICE(d);
    snprintf(out, (size_t)size, "0000:%02X:00.0", (unsigned)visible[d].gpu + 1);
    return OK;
}

int cuDeviceGetByPCIBusId(int *d, const char *address)
{
    char own[32];
    NEEDS_DRIVER();
    for (int i = 0; i < count; i++)
        if (!cuDeviceGetPCIBusId(own, sizeof own, i) && !strcasecmp(own, address)) { *d = i; return OK; }
    return INVALID_VALUE;
}

int cuDeviceGetAttribute(int *value, int attribute, int d)
{
    int major, minor;
    NEEDS_DEVICE(d);
    gpu_capability(visible[d].gpu, &major, &minor);
    switch (attribute) {
    case 1: case 2: case 3: *value = 1024; break;              /* threads of a block, its width, its height */
    case 4: *value = 64; break;                                /* its depth */
    case 5: *value = 2147483647; break;                        /* width of a grid */
    case 6: case 7: *value = 65535; break;                     /* its height, its depth */
    case 8: *value = 49152; break;                             /* shared memory of a block */
    case 9: *value = 65536; break;                             /* constant memory */
    case 10: *value = 32; break;                               /* threads of a warp */
    case 12: case 82: *value = 65536; break;                   /* registers of a block, of a multiprocessor */
    case 16: *value = 132; break;                              /* multiprocessors */
    case 20: *value = compute_mode(visible[d].gpu); break;
    case 33: *value = visible[d].gpu + 1; break;               /* bus */
    case 34: case 50: *value = 0; break;                       /* slot, domain */
    case 38: *value = 52428800; break;                         /* level 2 cache */
    case 39: *value = 2048; break;                             /* threads of a multiprocessor */
    case 41: *value = 1; break;                                /* one address space for host and device */
    case 75: *value = major; break;
    case 76: *value = minor; break;
    case 81: *value = 233472; break;                           /* shared memory of a multiprocessor */
    case 97: *value = 232448; break;                           /* shared memory of a block, on request */
    case 106: *value = 32; break;                              /* blocks of a multiprocessor */
    default: *value = 0;
    }
    return OK;
}

int cuDeviceCanAccessPeer(int *can, int a, int b) { NEEDS_DEVICE(a); NEEDS_DEVICE(b); *can = a != b; return OK; }

/* ---- contexts: one for each device, made when first needed ---- */

int pretend_make_context(int d)
{
    NEEDS_DEVICE(d);
    int gpu = visible[d].gpu;
    if (contexts[d].made) return OK;
    if (listed("PRETEND_GPU_HANG", gpu)) { trace("hang", gpu); hang(); }
    wait_seconds(keyed("PRETEND_GPU_SLOW", gpu));
    const char *error = keyed("PRETEND_GPU_CONTEXT_ERROR", gpu);
    if (error) return (int)strtol(error, NULL, 10);
    if (listed("PRETEND_GPU_BUSY", gpu) || compute_mode(gpu) == 2) return DEVICE_UNAVAILABLE;
    pthread_mutex_lock(&lock);
    if (!contexts[d].made) { contexts[d].made = 1; trace("context", gpu); }
    pthread_mutex_unlock(&lock);
    return OK;
}

int cuDevicePrimaryCtxRetain(context **out, int d)
{
    int error = pretend_make_context(d);
    if (!error) *out = &contexts[d];
    return error;
}
int cuDevicePrimaryCtxRelease_v2(int d) { NEEDS_DEVICE(d); return OK; }
int cuDevicePrimaryCtxReset_v2(int d) { NEEDS_DEVICE(d); contexts[d].made = 0; return OK; }
int cuDevicePrimaryCtxGetState(int d, unsigned *flags, int *active) { NEEDS_DEVICE(d); *flags = 0; *active = contexts[d].made; return OK; }
int cuCtxGetCurrent(context **out) { NEEDS_DRIVER(); *out = depth ? stack[depth - 1] : NULL; return OK; }
int cuCtxGetDevice(int *d) { NEEDS_CONTEXT(); *d = stack[depth - 1]->ordinal; return OK; }
int cuCtxSynchronize(void) { NEEDS_CONTEXT(); return OK; }
int cuCtxPushCurrent_v2(context *c) { NEEDS_DRIVER(); if (depth == MAX_STACK) return INVALID_VALUE; stack[depth++] = c; return OK; }
int cuCtxPopCurrent_v2(context **c) { NEEDS_CONTEXT(); depth--; if (c) *c = stack[depth]; return OK; }
int cuCtxPushCurrent(context *c) { return cuCtxPushCurrent_v2(c); }
int cuCtxPopCurrent(context **c) { return cuCtxPopCurrent_v2(c); }
int cuCtxSetCurrent(context *c)
{
    NEEDS_DRIVER();
    if (!depth) depth = 1;
    stack[depth - 1] = c;
    return OK;
}

/* ---- memory ---- */

static uint64_t taken(int gpu)
{
    uint64_t sum = 0;
    for (allocation *a = allocations; a; a = a->next) if (a->kind == ON_DEVICE && a->gpu == gpu) sum += a->size;
    return sum;
}

static int allocate(void **out, size_t size, int gpu, int kind)
{
    int error = OK;
    pthread_mutex_lock(&lock);
    if (kind == ON_DEVICE && (listed("PRETEND_GPU_OOM", gpu) || size > gpu_free(gpu) || size > gpu_free(gpu) - taken(gpu))) error = OUT_OF_MEMORY;
    allocation *a = error ? NULL : malloc(sizeof *a);
    char *start = a ? calloc(1, size ? size : 1) : NULL;
    if (start) {
        *a = (allocation){allocations, start, size, gpu, kind};
        allocations = a;
        *out = start;
    } else { free(a); error = OUT_OF_MEMORY; }
    pthread_mutex_unlock(&lock);
    return error;
}

static allocation *holding(const char *p)
{
    allocation *a = allocations;
    while (a && !(p >= a->start && p < a->start + (a->size ? a->size : 1))) a = a->next;
    return a;
}

static int release(void *p)
{
    if (!p) return OK;
    pthread_mutex_lock(&lock);
    allocation **link = &allocations;
    while (*link && (*link)->start != p) link = &(*link)->next;
    allocation *a = *link;
    if (a) { *link = a->next; free(a->start); free(a); }
    pthread_mutex_unlock(&lock);
    return a ? OK : INVALID_VALUE;
}

int cuMemAlloc_v2(void **out, size_t size)
{
    NEEDS_CONTEXT();
    int gpu = pretend_gpu(stack[depth - 1]->ordinal), error = size ? allocate(out, size, gpu, ON_DEVICE) : INVALID_VALUE;
    if (!error) trace("malloc", gpu);
    return error;
}
int cuMemFree_v2(void *p) { NEEDS_DRIVER(); return release(p); }
int cuMemHostAlloc(void **out, size_t size, unsigned flags) { (void)flags; NEEDS_CONTEXT(); return allocate(out, size, 0, HOST); }
int cuMemFreeHost(void *p) { NEEDS_DRIVER(); return release(p); }

int cuMemGetInfo_v2(size_t *left, size_t *total)
{
    NEEDS_CONTEXT();
    device d = visible[stack[depth - 1]->ordinal];
    pthread_mutex_lock(&lock);
    uint64_t room = gpu_free(d.gpu), used = taken(d.gpu);
    pthread_mutex_unlock(&lock);
    *total = device_total(d);
    *left = used < room ? room - used : 0;
    if (*left > *total) *left = *total;
    return OK;
}

int cuMemGetAddressRange_v2(void **start, size_t *size, void *p)
{
    NEEDS_DRIVER();
    allocation *a = holding(p);
    if (!a) return INVALID_VALUE;
    if (start) *start = a->start;
    if (size) *size = a->size;
    return OK;
}
int cuMemGetAddressRange(void **start, size_t *size, void *p) { return cuMemGetAddressRange_v2(start, size, p); }

/* Kind of memory behind *p*: 0 none of ours, 1 host, 2 device; and the ordinal of its device. */
int pretend_pointer(const void *p, int *ordinal)
{
    pthread_mutex_lock(&lock);
    allocation *a = holding(p);
    int kind = a ? a->kind : 0, gpu = a ? a->gpu : 0;
    pthread_mutex_unlock(&lock);
    *ordinal = 0;
    for (int i = 0; i < count && kind == ON_DEVICE; i++) if (visible[i].gpu == gpu) { *ordinal = i; break; }
    return kind;
}

int cuPointerGetAttribute(void *out, int attribute, void *p)
{
    int ordinal, kind = pretend_pointer(p, &ordinal);
    NEEDS_DRIVER();
    if (!kind) return INVALID_VALUE;
    if (attribute == 2) *(int *)out = kind;
    else if (attribute == 9) *(int *)out = ordinal;
    else return INVALID_VALUE;
    return OK;
}

/* ---- kernels: they do nothing ---- */

int pretend_launch(void)
{
    NEEDS_CONTEXT();
    int gpu = pretend_gpu(stack[depth - 1]->ordinal);
    const char *error = keyed("PRETEND_GPU_LAUNCH_ERROR", gpu);
    if (error) return (int)strtol(error, NULL, 10);
    return listed("PRETEND_GPU_NO_KERNELS", gpu) ? NO_KERNEL_IMAGE : OK;
}
int cuLaunchKernel(void) { return pretend_launch(); }
int cuLaunchCooperativeKernel(void) { return pretend_launch(); }

static const struct { int code; const char *name, *text; } ERRORS[] = {
    {0, "CUDA_SUCCESS", "no error"}, {1, "CUDA_ERROR_INVALID_VALUE", "invalid argument"},
    {2, "CUDA_ERROR_OUT_OF_MEMORY", "out of memory"}, {3, "CUDA_ERROR_NOT_INITIALIZED", "initialization error"},
    {46, "CUDA_ERROR_DEVICE_UNAVAILABLE", "CUDA-capable device(s) is/are busy or unavailable"},
    {100, "CUDA_ERROR_NO_DEVICE", "no CUDA-capable device is detected"},
    {101, "CUDA_ERROR_INVALID_DEVICE", "invalid device ordinal"}, {201, "CUDA_ERROR_INVALID_CONTEXT", "invalid device context"},
    {209, "CUDA_ERROR_NO_BINARY_FOR_GPU", "no kernel image is available for execution on the device"},
    {801, "CUDA_ERROR_NOT_SUPPORTED", "operation not supported"}, {999, "CUDA_ERROR_UNKNOWN", "unknown error"},
};

int cuGetErrorString(int code, const char **out)
{
    for (size_t i = 0; i < sizeof ERRORS / sizeof *ERRORS; i++) if (ERRORS[i].code == code) { *out = ERRORS[i].text; return OK; }
    *out = NULL;
    return INVALID_VALUE;
}
int cuGetErrorName(int code, const char **out)
{
    for (size_t i = 0; i < sizeof ERRORS / sizeof *ERRORS; i++) if (ERRORS[i].code == code) { *out = ERRORS[i].name; return OK; }
    *out = NULL;
    return INVALID_VALUE;
}

/* Functions that torch's libraries ask for by name and that nothing here can do. */
#define REFUSES(name) int name(void) { NEEDS_DRIVER(); return NOT_SUPPORTED; }
REFUSES(cuModuleLoad) REFUSES(cuModuleLoadData) REFUSES(cuModuleLoadDataEx) REFUSES(cuModuleUnload) REFUSES(cuModuleGetFunction)
REFUSES(cuFuncGetAttribute) REFUSES(cuFuncSetAttribute) REFUSES(cuFuncSetCacheConfig) REFUSES(cuLinkCreate_v2) REFUSES(cuLinkAddData_v2)
REFUSES(cuLinkComplete) REFUSES(cuOccupancyMaxActiveBlocksPerMultiprocessor) REFUSES(cuTensorMapEncodeTiled)
REFUSES(cuMemCreate) REFUSES(cuMemMap) REFUSES(cuMemUnmap) REFUSES(cuMemRelease) REFUSES(cuMemSetAccess) REFUSES(cuMemAddressReserve)
REFUSES(cuMemAddressFree) REFUSES(cuMemGetAllocationGranularity) REFUSES(cuStreamWriteValue32) REFUSES(cuMemsetD32Async)
REFUSES(cuMemExportToShareableHandle) REFUSES(cuMemImportFromShareableHandle) REFUSES(cuMemRetainAllocationHandle)
REFUSES(cuMemGetAllocationPropertiesFromHandle) REFUSES(cuMulticastAddDevice) REFUSES(cuMulticastBindMem) REFUSES(cuMulticastCreate)
REFUSES(cuMulticastUnbind) REFUSES(cuCtxFromGreenCtx) REFUSES(cuDevResourceGenerateDesc) REFUSES(cuDevSmResourceSplitByCount)
REFUSES(cuDeviceGetDevResource) REFUSES(cuGreenCtxCreate) REFUSES(cuGreenCtxDestroy) REFUSES(cuGreenCtxStreamCreate)
REFUSES(cuLogsRegisterCallback) REFUSES(cuLogsUnregisterCallback) REFUSES(cuCtxSetLimit) REFUSES(cuCtxGetLimit)
