/* libnvidia-ml.so.1 of a machine that has none: all GPUs in the order of their bus addresses, whatever the mask says.
 *
 * Any function can be made to fail or to hang: PRETEND_NVML_FAIL=nvmlDeviceGetUUID:999, PRETEND_NVML_HANG=nvmlInit. The name
 * may leave out the version suffix; nvmlInit stands for each of its three forms.
 */
#include "pretend.h"

enum { UNINITIALIZED = 1, INVALID_ARGUMENT = 2, UNSUPPORTED = 3, NO_PERMISSION = 4, NOT_FOUND = 6, INSUFFICIENT_SIZE = 7,
       DRIVER_NOT_LOADED = 9, GPU_IS_LOST = 15, UNKNOWN = 999 };

typedef struct { char short_id[16]; unsigned domain, bus, slot, id, subsystem; char bus_id[32]; } pci_info;
typedef struct { unsigned long long total, free, used; } memory;
typedef struct { unsigned version; unsigned long long total, reserved, free, used; } memory_v2;

static int users;

/* Is this function in a list of names, its version suffix being optional? Then *after* is what follows the name. */
static int named(const char *variable, const char *function, const char **after)
{
    for (const char *p = getenv(variable); p && *p; p = next_entry(p)) {
        size_t length = strcspn(p, ":,");
        int any_init = length == 8 && !strncmp(p, "nvmlInit", 8);
        if (strncmp(p, function, length) || (function[length] && !any_init && strncmp(function + length, "_v", 2))) continue;
        *after = p + length;
        return 1;
    }
    return 0;
}

static int enter(const char *function)
{
    const char *after;
    char line[128];
    append_line("PRETEND_GPU_TRACE_NVML", line, (size_t)snprintf(line, sizeof line, "%d nvml %s\n", (int)getpid(), function));
    if (named("PRETEND_NVML_HANG", function, &after)) for (;;) sleep(1);
    if (named("PRETEND_NVML_SLOW", function, &after) && *after == ':') usleep((unsigned)(strtod(after + 1, NULL) * 1e6));
    if (named("PRETEND_NVML_FAIL", function, &after)) return *after == ':' ? (int)strtol(after + 1, NULL, 10) : UNKNOWN;
    if (!strncmp(function, "nvmlInit", 8)) return setting_is("PRETEND_NVML", "absent") ? DRIVER_NOT_LOADED : OK;
    if (!users) return UNINITIALIZED;
    return setting_is("PRETEND_NVML", "broken") ? UNKNOWN : OK;
}

/* A handle holds the GPU's number and, for a MIG device, its place in the list. */
static void *handle_of(int gpu, int place) { return (void *)(intptr_t)((gpu + 1) | (place + 1) << 16); }

static int device_of(void *handle, device *out)
{
    int gpu = (int)((intptr_t)handle & 0xffff) - 1, place = (int)((intptr_t)handle >> 16) - 1;
    device found[MAX_MIG_DEVICES];
    if (gpu < 0 || gpu >= gpu_count() || place < -1) return INVALID_ARGUMENT;
    if (is_lost(gpu)) return GPU_IS_LOST;
    *out = (device){gpu, WHOLE, WHOLE};
    if (place >= 0) {
        if (place >= mig_devices(gpu, found, MAX_MIG_DEVICES) || found[place].gi == HOLE) return INVALID_ARGUMENT;
        *out = found[place];
    }
    return OK;
}

static int put_text(char *out, unsigned size, const char *text)
{
    if (strlen(text) >= size) return INSUFFICIENT_SIZE;
    memcpy(out, text, strlen(text) + 1);
    return OK;
}

#define ENTER() do { int error_ = enter(__func__); if (error_) return error_; } while (0)
#define DEVICE(d) device d; do { ENTER(); int error_ = device_of(handle, &d); if (error_) return error_; } while (0)
#define SAME(alias, function, parameters, arguments) int alias parameters { return function arguments; }

/* ---- start and end ---- */

static int begin(const char *function) { int error = enter(function); if (!error) users++; return error; }
int nvmlInit(void) { return begin(__func__); }
int nvmlInit_v2(void) { return begin(__func__); }
int nvmlInitWithFlags(unsigned flags) { (void)flags; return begin(__func__); }
int nvmlShutdown(void) { ENTER(); users--; return OK; }

/* ---- the machine ---- */

int nvmlSystemGetDriverVersion(char *out, unsigned size)
{
    const char *text = getenv("PRETEND_DRIVER_RELEASE");
    ENTER();
    return put_text(out, size, text && *text ? text : "580.65.06");
}
int nvmlSystemGetNVMLVersion(char *out, unsigned size) { ENTER(); return put_text(out, size, "13.580.65.06"); }
int nvmlSystemGetCudaDriverVersion_v2(int *version) { ENTER(); *version = driver_cuda_version(); return OK; }
int nvmlSystemGetCudaDriverVersion(int *version) { ENTER(); *version = driver_cuda_version(); return OK; }
int nvmlDeviceGetCount_v2(unsigned *n) { ENTER(); *n = (unsigned)gpu_count(); return OK; }
int nvmlDeviceGetCount(unsigned *n) { ENTER(); *n = (unsigned)gpu_count(); return OK; }

/* ---- handles ---- */

static int give(int gpu, int place, void **handle)
{
    if (is_lost(gpu)) return GPU_IS_LOST;
    if (is_forbidden(gpu)) return NO_PERMISSION;
    *handle = handle_of(gpu, place);
    return OK;
}
int nvmlDeviceGetHandleByIndex_v2(unsigned index, void **handle)
{
    ENTER();
    return index < (unsigned)gpu_count() ? give((int)index, -1, handle) : INVALID_ARGUMENT;
}
SAME(nvmlDeviceGetHandleByIndex, nvmlDeviceGetHandleByIndex_v2, (unsigned index, void **handle), (index, handle))

int nvmlDeviceGetHandleByUUID(const char *uuid, void **handle)
{
    char own[UUID_SIZE];
    device found[MAX_MIG_DEVICES];
    ENTER();
    for (int gpu = 0; gpu < gpu_count(); gpu++) {
        uuid_text((device){gpu, WHOLE, WHOLE}, own);
        if (!strcmp(own, uuid)) return give(gpu, -1, handle);
        int n = mig_devices(gpu, found, MAX_MIG_DEVICES);
        for (int i = 0; i < n; i++) {
            if (found[i].gi == HOLE) continue;
            uuid_text(found[i], own);
            if (!strcmp(own, uuid)) return give(gpu, i, handle);
        }
    }
    return NOT_FOUND;
}

int nvmlDeviceGetHandleByPciBusId_v2(const char *address, void **handle)
{
    unsigned domain, bus;
    ENTER();
    if (sscanf(address, "%x:%x:", &domain, &bus) != 2 || domain || bus < 1 || bus > (unsigned)gpu_count()) return NOT_FOUND;
    return give((int)bus - 1, -1, handle);
}
SAME(nvmlDeviceGetHandleByPciBusId, nvmlDeviceGetHandleByPciBusId_v2, (const char *address, void **handle), (address, handle))

/* ---- one device ---- */

int nvmlDeviceGetIndex(void *handle, unsigned *index) { DEVICE(d); *index = (unsigned)d.gpu; return OK; }
int nvmlDeviceGetMinorNumber(void *handle, unsigned *minor) { DEVICE(d); *minor = (unsigned)d.gpu; return OK; }
int nvmlDeviceGetName(void *handle, char *out, unsigned size)
{
    char name[256];
    DEVICE(d);
    device_name(d, name, sizeof name);
    return put_text(out, size, name);
}
int nvmlDeviceGetUUID(void *handle, char *out, unsigned size)
{
    char uuid[UUID_SIZE];
    DEVICE(d);
    uuid_text(d, uuid);
    return put_text(out, size, uuid);
}
int nvmlDeviceGetPciInfo_v3(void *handle, pci_info *out)
{
    DEVICE(d);
    memset(out, 0, sizeof *out);
    out->bus = (unsigned)d.gpu + 1;
    snprintf(out->short_id, sizeof out->short_id, "0000:%02X:00.0", out->bus);
    snprintf(out->bus_id, sizeof out->bus_id, "00000000:%02X:00.0", out->bus);
    return OK;
}
SAME(nvmlDeviceGetPciInfo_v2, nvmlDeviceGetPciInfo_v3, (void *handle, pci_info *out), (handle, out))
SAME(nvmlDeviceGetPciInfo, nvmlDeviceGetPciInfo_v3, (void *handle, pci_info *out), (handle, out))

static uint64_t room_on(device d) { uint64_t room = gpu_free(d.gpu), total = device_total(d); return room < total ? room : total; }
int nvmlDeviceGetMemoryInfo(void *handle, memory *out)
{
    DEVICE(d);
    out->total = device_total(d), out->free = room_on(d), out->used = out->total - out->free;
    return OK;
}
int nvmlDeviceGetMemoryInfo_v2(void *handle, memory_v2 *out)
{
    DEVICE(d);
    out->total = device_total(d), out->reserved = 0, out->free = room_on(d), out->used = out->total - out->free;
    return OK;
}
int nvmlDeviceGetComputeMode(void *handle, int *mode) { DEVICE(d); *mode = compute_mode(d.gpu); return OK; }
int nvmlDeviceGetCudaComputeCapability(void *handle, int *major, int *minor) { DEVICE(d); gpu_capability(d.gpu, major, minor); return OK; }
int nvmlDeviceGetTemperature(void *handle, int sensor, unsigned *degrees) { (void)sensor; DEVICE(d); *degrees = 40u + (unsigned)d.gpu; return OK; }
int nvmlDeviceGetPowerUsage(void *handle, unsigned *milliwatts) { DEVICE(d); *milliwatts = 70000; return OK; }
int nvmlDeviceGetClockInfo(void *handle, int type, unsigned *mhz) { (void)type; DEVICE(d); *mhz = 1500; return OK; }
int nvmlDeviceGetUtilizationRates(void *handle, unsigned *rates) { DEVICE(d); rates[0] = rates[1] = 0; return OK; }
int nvmlDeviceGetComputeRunningProcesses_v3(void *handle, unsigned *n, void *out) { (void)out; DEVICE(d); *n = 0; return OK; }
SAME(nvmlDeviceGetComputeRunningProcesses, nvmlDeviceGetComputeRunningProcesses_v3, (void *handle, unsigned *n, void *out), (handle, n, out))

/* ---- MIG ---- */

int nvmlDeviceGetMigMode(void *handle, unsigned *now, unsigned *pending)
{
    DEVICE(d);
    if (!getenv("PRETEND_GPU_MIG")) return UNSUPPORTED;        /* a machine of cards that cannot be divided */
    *now = *pending = (unsigned)mig_mode(d.gpu);
    return OK;
}
int nvmlDeviceGetMaxMigDeviceCount(void *handle, unsigned *n)
{
    device found[MAX_MIG_DEVICES];
    DEVICE(d);
    int m = mig_devices(d.gpu, found, MAX_MIG_DEVICES);
    *n = mig_mode(d.gpu) ? (unsigned)(m > 7 ? m : 7) : 0;
    return OK;
}
int nvmlDeviceGetMigDeviceHandleByIndex(void *handle, unsigned index, void **out)
{
    device found[MAX_MIG_DEVICES];
    DEVICE(d);
    int n = mig_devices(d.gpu, found, MAX_MIG_DEVICES);
    if (index >= (unsigned)n || found[index].gi == HOLE) return NOT_FOUND;
    return give(d.gpu, (int)index, out);
}
int nvmlDeviceGetDeviceHandleFromMigDeviceHandle(void *handle, void **out)
{
    DEVICE(d);
    return d.gi < 0 ? INVALID_ARGUMENT : give(d.gpu, -1, out);
}
int nvmlDeviceIsMigDeviceHandle(void *handle, unsigned *is) { DEVICE(d); *is = d.gi >= 0; return OK; }
int nvmlDeviceGetGpuInstanceId(void *handle, unsigned *gi) { DEVICE(d); if (d.gi < 0) return UNSUPPORTED; *gi = (unsigned)d.gi; return OK; }
int nvmlDeviceGetComputeInstanceId(void *handle, unsigned *ci) { DEVICE(d); if (d.gi < 0) return UNSUPPORTED; *ci = (unsigned)d.ci; return OK; }

#define REFUSES(name) int name(void *handle) { (void)handle; ENTER(); return UNSUPPORTED; }
REFUSES(nvmlDeviceGetGpuFabricInfoV) REFUSES(nvmlDeviceGetNvLinkRemoteDeviceType) REFUSES(nvmlDeviceGetNvLinkRemotePciInfo_v2)
REFUSES(nvmlDeviceGetP2PStatus) REFUSES(nvmlDeviceGetTotalEccErrors) REFUSES(nvmlDeviceGetRemappedRows)
REFUSES(nvmlDeviceGetRetiredPagesPendingStatus)

const char *nvmlErrorString(int code)
{
    switch (code) {
    case OK: return "Success";
    case UNINITIALIZED: return "Uninitialized";
    case INVALID_ARGUMENT: return "Invalid Argument";
    case UNSUPPORTED: return "Not Supported";
    case NO_PERMISSION: return "Insufficient Permissions";
    case NOT_FOUND: return "Not Found";
    case INSUFFICIENT_SIZE: return "Insufficient Size";
    case DRIVER_NOT_LOADED: return "Driver Not Loaded";
    case GPU_IS_LOST: return "GPU is lost";
    default: return "Unknown Error";
    }
}
