/* What the three pretend libraries share: the machine, as the environment describes it.
 *
 * A pretend machine is read from the environment each time it is needed, so that a test can change it while a process runs
 * (a device falls off the bus, another process takes it). Only the mask and the order are frozen, by the driver, as the
 * real one does. See README.md beside this file for the settings.
 */
#ifndef PRETEND_H
#define PRETEND_H
#define _GNU_SOURCE
#include <dlfcn.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <time.h>
#include <unistd.h>

enum { MAX_GPUS = 1024, MIB = 20, UUID_SIZE = 96, MAX_MIG_DEVICES = 64 };
enum {
    OK = 0, INVALID_VALUE = 1, OUT_OF_MEMORY = 2, NOT_INITIALIZED = 3, INSUFFICIENT_DRIVER = 35, DEVICE_UNAVAILABLE = 46,
    NO_DEVICE = 100, INVALID_DEVICE = 101, NO_KERNEL_IMAGE = 209, INVALID_HANDLE = 400, SYMBOL_NOT_FOUND = 500,
    NOT_READY = 600, NOT_SUPPORTED = 801
};

/* A device as the driver enumerates it: a whole GPU (gi < 0), or one compute instance of it. */
typedef struct { int gpu, gi, ci; } device;
enum { WHOLE = -1, HOLE = -2 };

static inline long setting(const char *name, long otherwise)
{
    const char *text = getenv(name);
    return text && *text ? strtol(text, NULL, 10) : otherwise;
}

static inline int setting_is(const char *name, const char *value)
{
    const char *text = getenv(name);
    return text && !strcmp(text, value);
}

/* Entries of a comma-separated setting: the first one, and the one after. */
static inline const char *next_entry(const char *entry)
{
    const char *comma = entry ? strchr(entry, ',') : NULL;
    return comma ? comma + 1 : NULL;
}

/* Is *gpu* one of a list such as "1,3"? */
static inline int listed(const char *name, int gpu)
{
    for (const char *p = getenv(name); p && *p; p = next_entry(p))
        if (strtol(p, NULL, 10) == gpu) return 1;
    return 0;
}

/* The value for *gpu* in a list by position, such as "1024,2048". */
static inline long nth(const char *name, int gpu, long otherwise)
{
    const char *p = getenv(name);
    for (int i = 0; p && i < gpu; i++) p = next_entry(p);
    return p && *p && *p != ',' ? strtol(p, NULL, 10) : otherwise;
}

/* The text after "KEY:" in a list such as "1:46,3:719"; NULL where the key is not there. */
static inline const char *keyed_text(const char *name, const char *key)
{
    size_t length = strlen(key);
    for (const char *p = getenv(name); p && *p; p = next_entry(p))
        if (!strncmp(p, key, length) && p[length] == ':') return p + length + 1;
    return NULL;
}

static inline const char *keyed(const char *name, int gpu)
{
    char key[16];
    snprintf(key, sizeof key, "%d", gpu);
    return keyed_text(name, key);
}

/* "12.4" and "12040" are the same version. */
static inline int version_setting(const char *name, int otherwise)
{
    const char *text = getenv(name);
    if (!text || !*text) return otherwise;
    char *end;
    long major = strtol(text, &end, 10);
    return *end == '.' ? (int)(major * 1000 + strtol(end + 1, NULL, 10) * 10) : (int)major;
}

static inline int has_rule(const char *rule)
{
    size_t length = strlen(rule);
    for (const char *p = getenv("PRETEND_MASK_RULES"); p && *p; p = next_entry(p))
        if (!strncmp(p, rule, length) && (!p[length] || p[length] == ',')) return 1;
    return 0;
}

static inline void append_line(const char *variable, const char *line, size_t length)
{
    const char *path = getenv(variable);
    int file = path && *path ? open(path, O_WRONLY | O_APPEND | O_CREAT | O_CLOEXEC, 0644) : -1;
    if (file < 0) return;
    if (write(file, line, length) < 0) { /* a trace that cannot be written must not change what is traced */ }
    close(file);
}

static inline void trace(const char *event, long value)
{
    char line[128];
    append_line("PRETEND_GPU_TRACE", line, (size_t)snprintf(line, sizeof line, "%d %s %ld\n", (int)getpid(), event, value));
}

/* ---- the GPUs, by physical index: the order of their bus addresses ---- */

static inline int gpu_count(void)
{
    long n = setting("PRETEND_GPUS", 0);
    return n < 0 ? 0 : n > MAX_GPUS ? MAX_GPUS : (int)n;
}

/* NVML lists these, and the driver cannot use them. */
static inline int is_lost(int gpu) { return listed("PRETEND_GPU_LOST", gpu); }
static inline int is_forbidden(int gpu) { return listed("PRETEND_GPU_NO_PERMISSION", gpu); }

static inline void gpu_name(int gpu, char *out, size_t size)
{
    const char *p = getenv("PRETEND_GPU_MODELS");
    for (int i = 0; p && i < gpu; i++) p = next_entry(p);
    snprintf(out, size, "%.*s", p ? (int)strcspn(p, ",") : 11, p ? p : "Pretend GPU");
}

static inline uint64_t gpu_total(int gpu) { return (uint64_t)nth("PRETEND_GPU_TOTAL_MIB", gpu, 24576) << MIB; }

static inline uint64_t gpu_free(int gpu)
{
    uint64_t total = gpu_total(gpu), room = (uint64_t)nth("PRETEND_GPU_FREE_MIB", gpu, 20480) << MIB;
    return room < total ? room : total;
}

static inline void gpu_capability(int gpu, int *major, int *minor)
{
    const char *text = keyed("PRETEND_GPU_CAPABILITY", gpu);
    *major = 9, *minor = 0;
    if (text) sscanf(text, "%d.%d", major, minor);
}

/* 0 default, 2 prohibited, 3 exclusive to one process. */
static inline int compute_mode(int gpu)
{
    const char *text = keyed("PRETEND_GPU_COMPUTE_MODE", gpu);
    return text ? (int)strtol(text, NULL, 10) : listed("PRETEND_GPU_BUSY", gpu) ? 3 : 0;
}

static inline int driver_release(void) { return (int)setting("PRETEND_DRIVER_RELEASE", 580); }
static inline int driver_cuda_version(void) { return version_setting("PRETEND_CUDA_VERSION", 13000); }

/* ---- MIG: PRETEND_GPU_MIG=GPU:GI/CI,...  "GPU:" has the mode on and no instance, "GPU:-" leaves a hole in NVML's list ---- */

static inline int mig_mode(int gpu) { return keyed("PRETEND_GPU_MIG", gpu) != NULL; }

/* The instances of *gpu* in NVML's order, holes included; returns how many. */
static inline int mig_devices(int gpu, device *out, int room)
{
    int n = 0;
    for (const char *p = getenv("PRETEND_GPU_MIG"); p && *p && n < room; p = next_entry(p)) {
        device d = {gpu, HOLE, HOLE};
        int owner, used = 0;
        if (sscanf(p, "%d:%n", &owner, &used) != 1 || !used || owner != gpu) continue;
        if (p[used] == '-') out[n++] = d;
        else if (sscanf(p + used, "%d/%d", &d.gi, &d.ci) == 2) out[n++] = d;
    }
    return n;
}

static inline uint64_t device_total(device d) { return d.gi < 0 ? gpu_total(d.gpu) : gpu_total(d.gpu) / 8; }

static inline void device_name(device d, char *out, size_t size)
{
    gpu_name(d.gpu, out, size);
    size_t used = strlen(out);
    if (d.gi >= 0) snprintf(out + used, size - used, " MIG 1g");
}

/* The 16 bytes of a UUID: the GPU's number four times, the version, then GPU, GI and CI. */
static inline void uuid_bytes(device d, unsigned char out[16])
{
    uint32_t stamp = (uint32_t)(d.gpu + 1) * 0x01010101u;
    memset(out, 0, 16);
    for (int i = 0; i < 4; i++) out[i] = (unsigned char)(stamp >> (24 - 8 * i));
    out[6] = d.gi < 0 ? 0x40 : 0x50;
    out[8] = 0x80;
    if (d.gi < 0) {
        out[14] = (unsigned char)(d.gpu >> 8), out[15] = (unsigned char)d.gpu;
    } else {
        out[10] = (unsigned char)(d.gpu >> 8), out[11] = (unsigned char)d.gpu;
        out[13] = (unsigned char)d.gi, out[15] = (unsigned char)d.ci;
    }
}

static inline void uuid_text(device d, char out[UUID_SIZE])
{
    unsigned char b[16];
    uuid_bytes(d, b);
    snprintf(out, UUID_SIZE, "%s-%02x%02x%02x%02x-%02x%02x-%02x%02x-%02x%02x-%02x%02x%02x%02x%02x%02x", d.gi < 0 ? "GPU" : "MIG",
             b[0], b[1], b[2], b[3], b[4], b[5], b[6], b[7], b[8], b[9], b[10], b[11], b[12], b[13], b[14], b[15]);
}

#endif
