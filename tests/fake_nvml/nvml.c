/* The calls. Prototypes and layouts come from NVIDIA's own nvml.h, so that a wrong one does not compile.
 *
 * FAKE_NVML        the scenario file; read again when it changes
 * FAKE_NVML_CLOCK  a file of one double, Unix seconds: virtual time
 * Compiled with -DOLD_DRIVER, the calls are missing that drivers before R515 did not have. */
#define NVML_NO_UNVERSIONED_FUNC_DEFS
#include <nvml.h>

#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "fake.h"

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static unsigned users, generation;
static int order[MAX_GPUS], listed;
static struct stat loaded;
static double last_look;

/* Who was called how often: tests ask for it, to show that nothing is ever set. */
static struct { const char *name; unsigned long count; } calls[256];
static int call_kinds;

unsigned long fakenvml_calls(const char *name) {
    for (int i = 0; i < call_kinds; i++) if (!strcmp(calls[i].name, name)) return calls[i].count;
    return 0;
}

static int count_call(const char *name) {
    calls[call_kinds].name = name;
    return call_kinds++;
}

/* A handle is a number, not an address: one of an earlier initialisation is told from one of this. */
static nvmlDevice_t handle_of(int card, int part) {
    return (nvmlDevice_t)(uintptr_t)((uintptr_t)generation << 16 | (uintptr_t)(card + 1) << 8 | (uintptr_t)(part + 1));
}

struct place { struct gpu *g; const struct unit *u; int card, part; };

static bool find(nvmlDevice_t device, struct place *p) {
    uintptr_t h = (uintptr_t)device;
    p->card = (int)(h >> 8 & 0xff) - 1;
    p->part = (int)(h & 0xff) - 1;
    if (h >> 16 != generation || p->card < 0 || p->card >= S.gpus) return false;
    p->g = &S.gpu[p->card];
    if (p->part >= p->g->instances) return false;
    p->u = p->part < 0 ? NULL : &p->g->instance[p->part];
    return true;
}

static void look(bool now) {
    struct timespec ts;
    struct stat st;
    const char *path = getenv("FAKE_NVML");
    clock_gettime(CLOCK_MONOTONIC_COARSE, &ts);
    double at = (double)ts.tv_sec + (double)ts.tv_nsec / 1e9;
    if (!now && at - last_look < 0.1) return;
    last_look = at;
    if (!path || stat(path, &st)) { if (now) scenario_load(path); return; }
    if (st.st_mtim.tv_sec == loaded.st_mtim.tv_sec && st.st_mtim.tv_nsec == loaded.st_mtim.tv_nsec
        && st.st_ino == loaded.st_ino && st.st_size == loaded.st_size && !(now && *S.problem)) return;
    loaded = st;
    scenario_load(path);
}

static void rest(double seconds) {
    struct timespec ts = {(time_t)seconds, (long)((seconds - floor(seconds)) * 1e9)};
    while (nanosleep(&ts, &ts)) {}
}

static nvmlReturn_t broken(struct gpu *g, const char *function, double at, double *hang) {
    nvmlReturn_t code = NVML_SUCCESS;
    for (int i = 0; i < g->faults; i++) {
        const struct fault *f = &g->fault[i];
        if (at < f->start || at >= f->end || (strcmp(f->function, "*") && strcmp(f->function, function))) continue;
        if (f->hang > 0) *hang = fmax(*hang, f->hang);
        else code = (nvmlReturn_t)f->code;
    }
    if (code == NVML_ERROR_GPU_IS_LOST) g->lost = true;
    return code;
}

/* Every call on a device begins here: the scenario's faults, then the device. */
static nvmlReturn_t enter(nvmlDevice_t device, const char *function, struct place *p, double *at) {
    double hang = 0;
    nvmlReturn_t code = NVML_SUCCESS;
    pthread_mutex_lock(&lock);
    if (!users) code = NVML_ERROR_UNINITIALIZED;
    else {
        look(false);
        *at = scenario_now();
        if (!find(device, p)) code = NVML_ERROR_INVALID_ARGUMENT;
        else {
            if (p->g->faults) code = broken(p->g, function, *at, &hang);
            if (p->g->lost) code = NVML_ERROR_GPU_IS_LOST;
        }
    }
    pthread_mutex_unlock(&lock);
    if (hang > 0) rest(hang);
    return code;
}

#define CALLED() do { static int kind_ = -1; if (kind_ < 0) kind_ = count_call(__func__); calls[kind_].count++; } while (0)
#define ENTER(device) struct place p; double at; CALLED(); \
    { nvmlReturn_t code_ = enter((device), __func__ + 4, &p, &at); if (code_ != NVML_SUCCESS) return code_; }
#define WHOLE() if (p.u) return NVML_ERROR_NOT_SUPPORTED
#define PHYSICAL() do { WHOLE(); if (p.g->p->virtual_) return NVML_ERROR_NOT_SUPPORTED; } while (0)

/* What a register of 32 or 64 bits shows of a number that it cannot hold: all ones. */
static unsigned narrow(double value) { return value < 0 || value >= 4294967296.0 ? ~0u : (unsigned)value; }
static unsigned long long wide(double value) { return value < 0 || value >= 18446744073709551615.0 ? ~0ull : (unsigned long long)value; }

static nvmlReturn_t text(char *out, unsigned length, const char *what) {
    if (!out) return NVML_ERROR_INVALID_ARGUMENT;
    if (strlen(what) + 1 > length) return NVML_ERROR_INSUFFICIENT_SIZE;
    memcpy(out, what, strlen(what) + 1);
    return NVML_SUCCESS;
}

/* ---- library and node ---- */

nvmlReturn_t nvmlInitWithFlags(unsigned flags) {
    double hang = 0;
    nvmlReturn_t code = NVML_SUCCESS;
    (void)flags;
    CALLED();
    pthread_mutex_lock(&lock);
    look(true);
    double at = scenario_now();
    for (int i = 0; i < S.inits; i++)
        if (at >= S.init[i].start && at < S.init[i].end) {
            if (S.init[i].hang > 0) hang = S.init[i].hang;
            else code = (nvmlReturn_t)S.init[i].code;
        }
    if (*S.problem) code = NVML_ERROR_DRIVER_NOT_LOADED;
    if (code == NVML_SUCCESS && !users++) {
        generation++;
        listed = 0;
        for (int i = 0; i < S.gpus; i++) {
            bool gone = false;
            for (int k = 0; k < S.gpu[i].gones; k++) gone |= at >= S.gpu[i].gone[k].start && at < S.gpu[i].gone[k].end;
            S.gpu[i].lost = false;
            if (!gone) order[listed++] = i;
        }
    }
    pthread_mutex_unlock(&lock);
    if (hang > 0) rest(hang);
    return code;
}
nvmlReturn_t nvmlInit_v2(void) { return nvmlInitWithFlags(0); }
nvmlReturn_t nvmlInit(void) { return nvmlInitWithFlags(0); }
nvmlReturn_t nvmlShutdown(void) {
    CALLED();
    if (!users) return NVML_ERROR_UNINITIALIZED;
    users--;
    return NVML_SUCCESS;
}
const char *nvmlErrorString(nvmlReturn_t result) {
    static const char *const words[] = {"Success", "Uninitialized", "Invalid Argument", "Not Supported",
        "Insufficient Permissions", "Already Initialized", "Not Found", "Insufficient Size", "Insufficient External Power",
        "Driver Not Loaded", "Timeout", "Interrupt Request Issue", "NVML Shared Library Not Found", "Function Not Found",
        "Corrupted infoROM", "GPU is lost", "GPU requires restart", "The operating system has blocked the request.",
        "RM has detected an NVML/RM version mismatch."};
    return (size_t)result < sizeof words / sizeof *words ? words[result] : "Unknown Error";
}
nvmlReturn_t nvmlSystemGetDriverVersion(char *version, unsigned length) { CALLED(); return users ? text(version, length, S.driver) : NVML_ERROR_UNINITIALIZED; }
nvmlReturn_t nvmlSystemGetNVMLVersion(char *version, unsigned length) {
    char both[112];
    CALLED();
    snprintf(both, sizeof both, "%d.%s", atoi(S.cuda), S.driver);
    return users ? text(version, length, both) : NVML_ERROR_UNINITIALIZED;
}
nvmlReturn_t nvmlSystemGetCudaDriverVersion(int *version) {
    int major = 0, minor = 0;
    CALLED();
    sscanf(S.cuda, "%d.%d", &major, &minor);
    *version = major * 1000 + minor * 10;
    return users ? NVML_SUCCESS : NVML_ERROR_UNINITIALIZED;
}
nvmlReturn_t nvmlSystemGetCudaDriverVersion_v2(int *version) { return nvmlSystemGetCudaDriverVersion(version); }
nvmlReturn_t nvmlSystemGetProcessName(unsigned pid, char *name, unsigned length) {
    char path[64], comm[64] = "";
    FILE *file;
    CALLED();
    snprintf(path, sizeof path, "/proc/%u/comm", pid);
    if (!(file = fopen(path, "r"))) return NVML_ERROR_NOT_FOUND;
    if (fgets(comm, sizeof comm, file)) comm[strcspn(comm, "\n")] = 0;
    fclose(file);
    return text(name, length, comm);
}

/* ---- finding devices ---- */

nvmlReturn_t nvmlDeviceGetCount_v2(unsigned *count) {
    CALLED();
    if (!users) return NVML_ERROR_UNINITIALIZED;
    *count = (unsigned)listed;
    return NVML_SUCCESS;
}
nvmlReturn_t nvmlDeviceGetCount(unsigned *count) { return nvmlDeviceGetCount_v2(count); }

/* A handle by any way is subject to the faults of that way. */
static nvmlReturn_t give(int card, int part, const char *function, nvmlDevice_t *device) {
    struct place p;
    double at;
    *device = handle_of(card, part);
    return enter(*device, function, &p, &at);
}
nvmlReturn_t nvmlDeviceGetHandleByIndex_v2(unsigned index, nvmlDevice_t *device) {
    CALLED();
    if (!users) return NVML_ERROR_UNINITIALIZED;
    if ((int)index >= listed) return NVML_ERROR_INVALID_ARGUMENT;
    return give(order[index], -1, "DeviceGetHandleByIndex_v2", device);
}
nvmlReturn_t nvmlDeviceGetHandleByIndex(unsigned index, nvmlDevice_t *device) { return nvmlDeviceGetHandleByIndex_v2(index, device); }
nvmlReturn_t nvmlDeviceGetHandleByUUID(const char *uuid, nvmlDevice_t *device) {
    CALLED();
    if (!users) return NVML_ERROR_UNINITIALIZED;
    for (int k = 0; k < listed; k++) {
        struct gpu *g = &S.gpu[order[k]];
        if (!strcmp(g->uuid, uuid)) return give(order[k], -1, "DeviceGetHandleByUUID", device);
        for (int i = 0; i < g->instances; i++)
            if (!strcmp(g->instance[i].uuid, uuid)) return give(order[k], i, "DeviceGetHandleByUUID", device);
    }
    return NVML_ERROR_NOT_FOUND;
}
static void pci_of(const struct gpu *g, nvmlPciInfo_t *pci) {
    memset(pci, 0, sizeof *pci);
    sscanf(g->pci, "%x:%x:%x", &pci->domain, &pci->bus, &pci->device);
    pci->pciDeviceId = g->p->pci_id;
    snprintf(pci->busIdLegacy, sizeof pci->busIdLegacy, "%04X:%02X:%02X.0", pci->domain & 0xffff, pci->bus & 0xff, pci->device & 0xff);
    snprintf(pci->busId, sizeof pci->busId, "%08X:%02X:%02X.0", pci->domain, pci->bus & 0xff, pci->device & 0xff);
}
nvmlReturn_t nvmlDeviceGetHandleByPciBusId_v2(const char *bus, nvmlDevice_t *device) {
    CALLED();
    for (int k = 0; users && k < listed; k++) {
        nvmlPciInfo_t pci;
        pci_of(&S.gpu[order[k]], &pci);
        if (!strcasecmp(pci.busId, bus) || !strcasecmp(pci.busIdLegacy, bus)) return give(order[k], -1, "DeviceGetHandleByPciBusId_v2", device);
    }
    return users ? NVML_ERROR_NOT_FOUND : NVML_ERROR_UNINITIALIZED;
}
nvmlReturn_t nvmlDeviceGetPciInfo_v3(nvmlDevice_t device, nvmlPciInfo_t *pci) { ENTER(device) WHOLE(); pci_of(p.g, pci); return NVML_SUCCESS; }
nvmlReturn_t nvmlDeviceGetPciInfo_v2(nvmlDevice_t device, nvmlPciInfo_t *pci) { return nvmlDeviceGetPciInfo_v3(device, pci); }
nvmlReturn_t nvmlDeviceGetIndex(nvmlDevice_t device, unsigned *index) {
    ENTER(device)
    *index = (unsigned)p.part;
    if (!p.u) for (int k = 0; k < listed; k++) if (order[k] == p.card) *index = (unsigned)k;
    return NVML_SUCCESS;
}
nvmlReturn_t nvmlDeviceGetMinorNumber(nvmlDevice_t device, unsigned *minor) { ENTER(device) WHOLE(); *minor = p.g->minor; return NVML_SUCCESS; }
nvmlReturn_t nvmlDeviceGetName(nvmlDevice_t device, char *name, unsigned length) {
    char full[2 * NAME];
    ENTER(device)
    if (!p.u) return text(name, length, p.g->name);
    snprintf(full, sizeof full, "%s MIG %s", p.g->name, p.u->profile);
    return text(name, length, full);
}
nvmlReturn_t nvmlDeviceGetUUID(nvmlDevice_t device, char *uuid, unsigned length) { ENTER(device) return text(uuid, length, p.u ? p.u->uuid : p.g->uuid); }
nvmlReturn_t nvmlDeviceGetSerial(nvmlDevice_t device, char *serial, unsigned length) { char s[16]; ENTER(device) WHOLE(); snprintf(s, sizeof s, "%d", 1650000 + p.card); return text(serial, length, s); }
nvmlReturn_t nvmlDeviceGetPersistenceMode(nvmlDevice_t device, nvmlEnableState_t *mode) { ENTER(device) *mode = reading_of(p.g, R_PERSISTENCE, at) != 0 ? NVML_FEATURE_ENABLED : NVML_FEATURE_DISABLED; return NVML_SUCCESS; }
nvmlReturn_t nvmlDeviceGetComputeMode(nvmlDevice_t device, nvmlComputeMode_t *mode) { ENTER(device) *mode = NVML_COMPUTEMODE_DEFAULT; return NVML_SUCCESS; }
nvmlReturn_t nvmlDeviceGetVirtualizationMode(nvmlDevice_t device, nvmlGpuVirtualizationMode_t *mode) { ENTER(device) WHOLE(); *mode = p.g->p->virtual_ ? NVML_GPU_VIRTUALIZATION_MODE_VGPU : NVML_GPU_VIRTUALIZATION_MODE_NONE; return NVML_SUCCESS; }

/* ---- MIG ---- */

nvmlReturn_t nvmlDeviceGetMigMode(nvmlDevice_t device, unsigned *current, unsigned *pending) { ENTER(device) PHYSICAL(); *current = *pending = p.g->instances > 0; return NVML_SUCCESS; }
nvmlReturn_t nvmlDeviceGetMaxMigDeviceCount(nvmlDevice_t device, unsigned *count) { ENTER(device) WHOLE(); *count = p.g->p->virtual_ ? 0 : 7; return NVML_SUCCESS; }
nvmlReturn_t nvmlDeviceGetMigDeviceHandleByIndex(nvmlDevice_t device, unsigned index, nvmlDevice_t *mig) {
    ENTER(device) WHOLE();
    if ((int)index >= p.g->instances) return NVML_ERROR_NOT_FOUND;
    *mig = handle_of(p.card, (int)index);
    return NVML_SUCCESS;
}
nvmlReturn_t nvmlDeviceIsMigDeviceHandle(nvmlDevice_t device, unsigned *is) { ENTER(device) *is = p.u != NULL; return NVML_SUCCESS; }
nvmlReturn_t nvmlDeviceGetDeviceHandleFromMigDeviceHandle(nvmlDevice_t mig, nvmlDevice_t *device) { ENTER(mig) if (!p.u) return NVML_ERROR_INVALID_ARGUMENT; *device = handle_of(p.card, -1); return NVML_SUCCESS; }
nvmlReturn_t nvmlDeviceGetGpuInstanceId(nvmlDevice_t device, unsigned *id) { ENTER(device) if (!p.u) return NVML_ERROR_NOT_SUPPORTED; *id = p.u->gi; return NVML_SUCCESS; }
nvmlReturn_t nvmlDeviceGetComputeInstanceId(nvmlDevice_t device, unsigned *id) { ENTER(device) if (!p.u) return NVML_ERROR_NOT_SUPPORTED; *id = p.u->ci; return NVML_SUCCESS; }
nvmlReturn_t nvmlDeviceGetAttributes_v2(nvmlDevice_t device, nvmlDeviceAttributes_t *attributes) {
    ENTER(device)
    if (!p.u) return NVML_ERROR_NOT_SUPPORTED;
    memset(attributes, 0, sizeof *attributes);
    attributes->multiprocessorCount = p.u->sms;
    attributes->gpuInstanceSliceCount = attributes->computeInstanceSliceCount = (unsigned)atoi(p.u->profile);
    attributes->memorySizeMB = p.u->memory >> 20;
    return NVML_SUCCESS;
}

/* ---- readings ---- */

nvmlReturn_t nvmlDeviceGetUtilizationRates(nvmlDevice_t device, nvmlUtilization_t *rates) {
    ENTER(device) WHOLE();
    if (p.g->instances) return NVML_ERROR_NOT_SUPPORTED;
    rates->gpu = narrow(reading_of(p.g, R_UTILIZATION, at));
    rates->memory = narrow(reading_of(p.g, R_MEMORY_UTILIZATION, at));
    return NVML_SUCCESS;
}
static void memory_of(const struct place *p, double at, unsigned long long *total, unsigned long long *used) {
    double value;
    if (p->u || !override_of(p->g, R_MEMORY_USED, at, &value)) value = memory_used(p->g, p->u, at);
    *total = p->u ? p->u->memory : p->g->whole.memory;
    *used = wide(value);
}
nvmlReturn_t nvmlDeviceGetMemoryInfo(nvmlDevice_t device, nvmlMemory_t *memory) { ENTER(device) memory_of(&p, at, &memory->total, &memory->used); memory->free = memory->total - memory->used; return NVML_SUCCESS; }
#ifndef OLD_DRIVER
nvmlReturn_t nvmlDeviceGetMemoryInfo_v2(nvmlDevice_t device, nvmlMemory_v2_t *memory) {
    ENTER(device)
    if (memory->version != nvmlMemory_v2) return NVML_ERROR_ARGUMENT_VERSION_MISMATCH;
    memory_of(&p, at, &memory->total, &memory->used);
    memory->reserved = 0;
    memory->free = memory->total - memory->used;
    return NVML_SUCCESS;
}
#endif
#define SCALAR(call, type, reading) nvmlReturn_t call(nvmlDevice_t device, type *out) { ENTER(device) PHYSICAL(); *out = (type)(sizeof(type) == 4 ? narrow(reading_of(p.g, reading, at)) : wide(reading_of(p.g, reading, at))); return NVML_SUCCESS; }
SCALAR(nvmlDeviceGetPowerUsage, unsigned, R_POWER)
SCALAR(nvmlDeviceGetEnforcedPowerLimit, unsigned, R_POWER_LIMIT)
SCALAR(nvmlDeviceGetPowerManagementLimit, unsigned, R_POWER_LIMIT)
SCALAR(nvmlDeviceGetPowerManagementDefaultLimit, unsigned, R_POWER_LIMIT)
SCALAR(nvmlDeviceGetCurrentClocksThrottleReasons, unsigned long long, R_THROTTLE)
#ifndef OLD_DRIVER
SCALAR(nvmlDeviceGetCurrentClocksEventReasons, unsigned long long, R_THROTTLE)
#endif
nvmlReturn_t nvmlDeviceGetPerformanceState(nvmlDevice_t device, nvmlPstates_t *state) { ENTER(device) PHYSICAL(); *state = NVML_PSTATE_0; return NVML_SUCCESS; }
nvmlReturn_t nvmlDeviceGetTotalEnergyConsumption(nvmlDevice_t device, unsigned long long *energy) {
    ENTER(device) WHOLE();
    if (!p.g->p->energy) return NVML_ERROR_NOT_SUPPORTED;
    *energy = wide(reading_of(p.g, R_ENERGY, at));
    return NVML_SUCCESS;
}
static nvmlReturn_t clock_of(struct place *p, double at, nvmlClockType_t type, bool top, unsigned *clock) {
    if (p->u) return NVML_ERROR_NOT_SUPPORTED;
    if (type == NVML_CLOCK_MEM) *clock = narrow(reading_of(p->g, top ? R_MEMORY_CLOCK_MAX : R_MEMORY_CLOCK, at));
    else *clock = narrow(reading_of(p->g, top ? R_SM_CLOCK_MAX : R_SM_CLOCK, at));
    return NVML_SUCCESS;
}
nvmlReturn_t nvmlDeviceGetClockInfo(nvmlDevice_t device, nvmlClockType_t type, unsigned *clock) { ENTER(device) return clock_of(&p, at, type, false, clock); }
nvmlReturn_t nvmlDeviceGetMaxClockInfo(nvmlDevice_t device, nvmlClockType_t type, unsigned *clock) { ENTER(device) return clock_of(&p, at, type, true, clock); }
nvmlReturn_t nvmlDeviceGetApplicationsClock(nvmlDevice_t device, nvmlClockType_t type, unsigned *clock) { ENTER(device) return clock_of(&p, at, type, true, clock); }
nvmlReturn_t nvmlDeviceGetTemperature(nvmlDevice_t device, nvmlTemperatureSensors_t sensor, unsigned *celsius) { ENTER(device) (void)sensor; PHYSICAL(); *celsius = narrow(reading_of(p.g, R_TEMPERATURE, at)); return NVML_SUCCESS; }
#ifndef OLD_DRIVER
nvmlReturn_t nvmlDeviceGetTemperatureV(nvmlDevice_t device, nvmlTemperature_t *temperature) {
    ENTER(device) PHYSICAL();
    if (temperature->version != nvmlTemperature_v1) return NVML_ERROR_ARGUMENT_VERSION_MISMATCH;
    temperature->temperature = (int)narrow(reading_of(p.g, R_TEMPERATURE, at));
    return NVML_SUCCESS;
}
#endif
nvmlReturn_t nvmlDeviceGetPcieThroughput(nvmlDevice_t device, nvmlPcieUtilCounter_t counter, unsigned *value) { ENTER(device) PHYSICAL(); *value = narrow(reading_of(p.g, counter == NVML_PCIE_UTIL_TX_BYTES ? R_PCIE_TX : R_PCIE_RX, at)); return NVML_SUCCESS; }
nvmlReturn_t nvmlDeviceGetTotalEccErrors(nvmlDevice_t device, nvmlMemoryErrorType_t type, nvmlEccCounterType_t counter, unsigned long long *count) { ENTER(device) PHYSICAL(); (void)type; (void)counter; *count = 0; return NVML_SUCCESS; }
nvmlReturn_t nvmlDeviceGetEncoderUtilization(nvmlDevice_t device, unsigned *value, unsigned *period) { ENTER(device) PHYSICAL(); *value = 0; *period = 167000; return NVML_SUCCESS; }
nvmlReturn_t nvmlDeviceGetDecoderUtilization(nvmlDevice_t device, unsigned *value, unsigned *period) { ENTER(device) PHYSICAL(); *value = 0; *period = 167000; return NVML_SUCCESS; }

/* ---- processes ---- */

static nvmlReturn_t processes(struct place *p, double at, unsigned *count, nvmlProcessInfo_t *out) {
    unsigned found = 0;
    for (int part = -1; part < p->g->instances; part++) {
        const struct unit *u = part < 0 ? &p->g->whole : &p->g->instance[part];
        if (p->u && u != p->u) continue;
        for (int i = 0; i < u->processes; i++) {
            if (at < u->process[i].start || at >= u->process[i].end) continue;
            if (out && found < *count) out[found] = (nvmlProcessInfo_t){u->process[i].pid, u->process[i].memory, part < 0 ? ~0u : u->gi, part < 0 ? ~0u : u->ci};
            found++;
        }
    }
    nvmlReturn_t code = found > *count || (found && !out) ? NVML_ERROR_INSUFFICIENT_SIZE : NVML_SUCCESS;
    *count = found;
    return code;
}
#ifndef OLD_DRIVER
nvmlReturn_t nvmlDeviceGetComputeRunningProcesses_v3(nvmlDevice_t device, unsigned *count, nvmlProcessInfo_t *infos) { ENTER(device) return processes(&p, at, count, infos); }
nvmlReturn_t nvmlDeviceGetGraphicsRunningProcesses_v3(nvmlDevice_t device, unsigned *count, nvmlProcessInfo_t *infos) { ENTER(device) (void)infos; *count = 0; return NVML_SUCCESS; }
#endif
nvmlReturn_t nvmlDeviceGetComputeRunningProcesses_v2(nvmlDevice_t device, unsigned *count, nvmlProcessInfo_v2_t *infos) { ENTER(device) return processes(&p, at, count, (nvmlProcessInfo_t *)infos); }
nvmlReturn_t nvmlDeviceGetProcessUtilization(nvmlDevice_t device, nvmlProcessUtilizationSample_t *samples, unsigned *count, unsigned long long last) {
    ENTER(device) WHOLE();
    unsigned found = 0;
    unsigned long long stamp = (unsigned long long)((S.epoch + at) * 1e6);
    if (p.g->instances) return NVML_ERROR_NOT_SUPPORTED;
    for (int i = 0; i < p.g->whole.processes; i++) {
        const struct process *one = &p.g->whole.process[i];
        if (at < one->start || at >= one->end || stamp <= last) continue;
        if (samples && found < *count) samples[found] = (nvmlProcessUtilizationSample_t){one->pid, stamp, narrow(reading_of(p.g, R_UTILIZATION, at)), narrow(reading_of(p.g, R_MEMORY_UTILIZATION, at)), 0, 0};
        found++;
    }
    bool small = found > *count || (found && !samples);
    *count = found;
    return !found ? NVML_ERROR_NOT_FOUND : small ? NVML_ERROR_INSUFFICIENT_SIZE : NVML_SUCCESS;
}

/* ---- field values and ring buffers ---- */

#ifndef OLD_DRIVER
static void whole_number(nvmlFieldValue_t *field, double value) {
    field->valueType = NVML_VALUE_TYPE_UNSIGNED_LONG_LONG;
    field->value.ullVal = wide(value);
}
static nvmlReturn_t one_field(const struct place *p, double at, nvmlFieldValue_t *field) {
    const struct profile *kind = p->g->p;
    bool module = field->scopeId == NVML_POWER_SCOPE_MODULE;
    if (field->fieldId >= NVML_FI_MAX) return NVML_ERROR_INVALID_ARGUMENT;
    /* Numbers that are also GPM metrics, where they mean something else. */
    if (field->fieldId >= NVML_FI_DEV_NVLINK_COUNT_FEC_HISTORY_0 && field->fieldId <= NVML_FI_DEV_NVLINK_COUNT_FEC_HISTORY_15) { whole_number(field, 7); return NVML_SUCCESS; }
    if (p->u || kind->virtual_) return NVML_ERROR_NOT_SUPPORTED;
    switch (field->fieldId) {
    case NVML_FI_DEV_TOTAL_ENERGY_CONSUMPTION: case NVML_FI_DEV_ENERGY:
        if (!kind->energy) return NVML_ERROR_NOT_SUPPORTED;
        whole_number(field, reading_of(p->g, R_ENERGY, at));
        return NVML_SUCCESS;
    case NVML_FI_DEV_POWER_AVERAGE: case NVML_FI_DEV_POWER_INSTANT: {
        bool average = field->fieldId == NVML_FI_DEV_POWER_AVERAGE;
        if ((module && !kind->module_extra_w) || (average && (module || !kind->power_average))) return NVML_ERROR_NOT_SUPPORTED;
        field->valueType = NVML_VALUE_TYPE_UNSIGNED_INT;
        field->value.uiVal = narrow(reading_of(p->g, module ? R_MODULE_POWER : average ? R_POWER_AVERAGE : R_POWER_INSTANT, at));
        return NVML_SUCCESS;
    }
    case NVML_FI_DEV_PCIE_COUNT_TX_BYTES: case NVML_FI_DEV_PCIE_COUNT_RX_BYTES:
        if (!kind->pcie_counters) return NVML_ERROR_NOT_SUPPORTED;
        whole_number(field, reading_of(p->g, field->fieldId == NVML_FI_DEV_PCIE_COUNT_TX_BYTES ? R_PCIE_TX_BYTES : R_PCIE_RX_BYTES, at));
        return NVML_SUCCESS;
    default:
        return NVML_ERROR_NOT_SUPPORTED;
    }
}
nvmlReturn_t nvmlDeviceGetFieldValues(nvmlDevice_t device, int count, nvmlFieldValue_t *values) {
    ENTER(device)
    if (!values || count < 1) return NVML_ERROR_INVALID_ARGUMENT;
    for (int i = 0; i < count; i++) {
        double hang = 0;
        nvmlReturn_t code = NVML_SUCCESS;
        if (p.g->faults) {
            char name[32];
            snprintf(name, sizeof name, "field:%u", values[i].fieldId);
            code = broken(p.g, name, at, &hang);
            if (hang > 0) rest(hang);
        }
        values[i].timestamp = (long long)((S.epoch + at) * 1e6);
        values[i].latencyUsec = 0;
        values[i].nvmlReturn = code != NVML_SUCCESS ? code : one_field(&p, at, &values[i]);
    }
    return NVML_SUCCESS;
}
#endif
nvmlReturn_t nvmlDeviceGetSamples(nvmlDevice_t device, nvmlSamplingType_t type, unsigned long long since, nvmlValueType_t *kind, unsigned *count, nvmlSample_t *samples) {
    static const struct { int reading; double period; int kept; } rings[] = {{R_POWER_INSTANT, 0.1, 120}, {R_UTILIZATION, 0, 100},
        {R_MEMORY_UTILIZATION, 0, 100}, {0, 0, 0}, {0, 0, 0}, {R_SM_CLOCK, 0.1, 100}, {R_MEMORY_CLOCK, 0.1, 100}, {R_MODULE_POWER, 0.1, 120}};
    ENTER(device) PHYSICAL();
    double hang = 0;
    char name[32];
    unsigned found = 0;
    snprintf(name, sizeof name, "samples:%d", (int)type);
    nvmlReturn_t code = broken(p.g, name, at, &hang);
    if (hang > 0) rest(hang);
    if (code != NVML_SUCCESS) return code;
    if ((size_t)type >= sizeof rings / sizeof *rings || !rings[type].kept) return NVML_ERROR_NOT_SUPPORTED;
    if (type == NVML_MODULE_POWER_SAMPLES && !p.g->p->module_extra_w) return NVML_ERROR_NOT_SUPPORTED;
    if (p.g->instances && (type == NVML_GPU_UTILIZATION_SAMPLES || type == NVML_MEMORY_UTILIZATION_SAMPLES)) return NVML_ERROR_NOT_SUPPORTED;
    if (!samples) { *count = (unsigned)rings[type].kept; return NVML_SUCCESS; }
    double step = rings[type].period > 0 ? rings[type].period : p.g->p->period, last = floor(at / step);
    *kind = NVML_VALUE_TYPE_UNSIGNED_INT;
    for (double tick = last - rings[type].kept + 1; tick <= last && found < *count; tick++) {
        double moment = tick * step;
        unsigned long long stamp = (unsigned long long)floor((S.epoch + moment) * 1e6 + 0.5);
        bool hole = false;
        for (int k = 0; k < p.g->holes; k++) hole |= p.g->hole[k].start <= moment && moment < p.g->hole[k].end;
        if (stamp <= since || hole) continue;
        samples[found].timeStamp = stamp;
        samples[found].sampleValue.ullVal = 0;
        samples[found++].sampleValue.uiVal = narrow(reading_of(p.g, rings[type].reading, moment));
    }
    *count = found;
    return found ? NVML_SUCCESS : NVML_ERROR_NOT_FOUND;
}

/* ---- events ---- */

struct nvmlEventSet_st { double seen[MAX_GPUS]; bool registered[MAX_GPUS]; int given[MAX_GPUS]; };
nvmlReturn_t nvmlEventSetCreate(nvmlEventSet_t *set) { CALLED(); if (!users) return NVML_ERROR_UNINITIALIZED; *set = calloc(1, sizeof **set); return NVML_SUCCESS; }
nvmlReturn_t nvmlEventSetFree(nvmlEventSet_t set) { CALLED(); free(set); return NVML_SUCCESS; }
nvmlReturn_t nvmlDeviceGetSupportedEventTypes(nvmlDevice_t device, unsigned long long *types) { ENTER(device) WHOLE(); *types = p.g->p->virtual_ ? nvmlEventTypeNone : nvmlEventTypeXidCriticalError; return NVML_SUCCESS; }
nvmlReturn_t nvmlDeviceRegisterEvents(nvmlDevice_t device, unsigned long long types, nvmlEventSet_t set) {
    ENTER(device) PHYSICAL();
    if (types & ~(unsigned long long)nvmlEventTypeXidCriticalError) return NVML_ERROR_NOT_SUPPORTED;
    set->registered[p.card] = true;
    set->seen[p.card] = at;
    return NVML_SUCCESS;
}
nvmlReturn_t nvmlEventSetWait_v2(nvmlEventSet_t set, nvmlEventData_t *data, unsigned timeout_ms) {
    CALLED();
    for (double waited = 0;; waited += 0.01) {
        double at = scenario_now();
        for (int card = 0; card < S.gpus; card++) {
            if (!set->registered[card]) continue;
            for (; set->given[card] < S.gpu[card].xids; set->given[card]++) {
                const struct xid *x = &S.gpu[card].xid[set->given[card]];
                if (x->at > at) break;
                if (x->at <= set->seen[card]) continue;
                set->given[card]++;
                *data = (nvmlEventData_t){handle_of(card, -1), nvmlEventTypeXidCriticalError, x->code, x->gi, x->ci};
                return NVML_SUCCESS;
            }
        }
        if (waited * 1000 >= timeout_ms) return NVML_ERROR_TIMEOUT;
        rest(0.01);
    }
}

/* ---- GPM ---- */

#ifndef OLD_DRIVER
struct nvmlGpmSample_st { bool taken; int card, part; double at; };
nvmlReturn_t nvmlGpmQueryDeviceSupport(nvmlDevice_t device, nvmlGpmSupport_t *support) {
    ENTER(device)
    if (support->version != NVML_GPM_SUPPORT_VERSION) return NVML_ERROR_ARGUMENT_VERSION_MISMATCH;
    support->isSupportedDevice = p.g->p->gpm;
    return NVML_SUCCESS;
}
nvmlReturn_t nvmlGpmSampleAlloc(nvmlGpmSample_t *sample) { CALLED(); *sample = calloc(1, sizeof **sample); return NVML_SUCCESS; }
nvmlReturn_t nvmlGpmSampleFree(nvmlGpmSample_t sample) { CALLED(); free(sample); return NVML_SUCCESS; }
static nvmlReturn_t take(const struct place *p, int part, double at, nvmlGpmSample_t sample) {
    if (!p->g->p->gpm) return NVML_ERROR_NOT_SUPPORTED;
    *sample = (struct nvmlGpmSample_st){true, p->card, part, at};
    return NVML_SUCCESS;
}
nvmlReturn_t nvmlGpmSampleGet(nvmlDevice_t device, nvmlGpmSample_t sample) { ENTER(device) return take(&p, p.part, at, sample); }
nvmlReturn_t nvmlGpmMigSampleGet(nvmlDevice_t device, unsigned gi, nvmlGpmSample_t sample) {
    ENTER(device)
    for (int i = 0; i < p.g->instances; i++) if (p.g->instance[i].gi == gi) return take(&p, i, at, sample);
    return NVML_ERROR_NOT_FOUND;
}
static nvmlReturn_t one_metric(const struct gpu *g, const struct unit *u, double from, double to, unsigned metric, double *value) {
    static const int quantities[14] = {-1, BUSY, ACTIVE, ACTIVE, INT, -1, DFMA, HMMA, DMMA, IMMA, MEMBUSY, FP64, FP32, FP16};
    if (metric >= NVML_GPM_METRIC_SM_CYCLES_ELAPSED && metric <= NVML_GPM_METRIC_FP16_CYCLES_ACTIVE) { *value = gpm_counter(g, u, metric, to); return NVML_SUCCESS; }
    if (override_of(g, R_GPM + (int)metric, to, value)) return NVML_SUCCESS;
    if (metric == NVML_GPM_METRIC_ANY_TENSOR_UTIL) {
        *value = 0;
        for (int q = HMMA; q <= DFMA; q++) *value += 100.0 * share_between(g, u, (enum quantity)q, from, to);
        return NVML_SUCCESS;
    }
    if (metric < 14 && quantities[metric] >= 0) { *value = 100.0 * share_between(g, u, (enum quantity)quantities[metric], from, to); return NVML_SUCCESS; }
    if (metric == NVML_GPM_METRIC_PCIE_TX_PER_SEC || metric == NVML_GPM_METRIC_PCIE_RX_PER_SEC) {
        unsigned counter = metric == NVML_GPM_METRIC_PCIE_TX_PER_SEC ? 255 : 256;
        *value = (gpm_counter(g, u, counter, to) - gpm_counter(g, u, counter, from)) / (to - from) / 1048576.0;
        return NVML_SUCCESS;
    }
    return NVML_ERROR_NOT_SUPPORTED;
}
nvmlReturn_t nvmlGpmMetricsGet(nvmlGpmMetricsGet_t *get) {
    CALLED();
    nvmlGpmSample_t a = get->sample1, b = get->sample2;
    if (get->version != NVML_GPM_METRICS_GET_VERSION) return NVML_ERROR_ARGUMENT_VERSION_MISMATCH;
    if (!a || !b || !a->taken || a->card != b->card || a->part != b->part || a->card >= S.gpus || get->numMetrics > NVML_GPM_METRIC_MAX) return NVML_ERROR_INVALID_ARGUMENT;
    struct gpu *g = &S.gpu[a->card];
    const struct unit *u = a->part < 0 ? NULL : &g->instance[a->part];
    for (unsigned i = 0; i < get->numMetrics; i++) {
        nvmlGpmMetric_t *metric = &get->metrics[i];
        char name[32];
        double hang = 0;
        snprintf(name, sizeof name, "gpm:%u", metric->metricId);
        metric->nvmlReturn = broken(g, name, b->at, &hang);
        if (hang > 0) rest(hang);
        /* The header asks for samples that are more than 100 ms apart. */
        if (metric->nvmlReturn == NVML_SUCCESS && b->at - a->at < 0.0999) metric->nvmlReturn = NVML_ERROR_NO_DATA;
        if (metric->nvmlReturn == NVML_SUCCESS) metric->nvmlReturn = one_metric(g, u, a->at, b->at, metric->metricId, &metric->value);
    }
    return NVML_SUCCESS;
}
#endif

/* ---- what Slurm's own NVML plugin wants besides; the setters are counted, and do nothing ---- */

nvmlReturn_t nvmlDeviceSetApplicationsClocks(nvmlDevice_t device, unsigned memory, unsigned graphics) { ENTER(device) (void)memory; (void)graphics; return NVML_SUCCESS; }
nvmlReturn_t nvmlDeviceResetApplicationsClocks(nvmlDevice_t device) { ENTER(device) return NVML_SUCCESS; }
nvmlReturn_t nvmlDeviceSetPersistenceMode(nvmlDevice_t device, nvmlEnableState_t mode) { ENTER(device) (void)mode; return NVML_SUCCESS; }
nvmlReturn_t nvmlDeviceGetSupportedMemoryClocks(nvmlDevice_t device, unsigned *count, unsigned *clocks) {
    ENTER(device)
    bool small = *count < 1;
    *count = 1;
    if (small || !clocks) return NVML_ERROR_INSUFFICIENT_SIZE;
    clocks[0] = narrow(reading_of(p.g, R_MEMORY_CLOCK_MAX, at));
    return NVML_SUCCESS;
}
nvmlReturn_t nvmlDeviceGetSupportedGraphicsClocks(nvmlDevice_t device, unsigned memory, unsigned *count, unsigned *clocks) {
    ENTER(device)
    bool small = *count < 2;
    (void)memory;
    *count = 2;
    if (small || !clocks) return NVML_ERROR_INSUFFICIENT_SIZE;
    clocks[0] = narrow(reading_of(p.g, R_SM_CLOCK_MAX, at));
    clocks[1] = p.g->p->idle_mhz;
    return NVML_SUCCESS;
}
nvmlReturn_t nvmlDeviceGetCpuAffinity(nvmlDevice_t device, unsigned size, unsigned long *set) { ENTER(device) memset(set, 0xff, size * sizeof *set); return NVML_SUCCESS; }
nvmlReturn_t nvmlDeviceGetNvLinkState(nvmlDevice_t device, unsigned link, nvmlEnableState_t *state) { ENTER(device) (void)link; *state = NVML_FEATURE_DISABLED; return NVML_ERROR_NOT_SUPPORTED; }
nvmlReturn_t nvmlDeviceGetNvLinkRemotePciInfo_v2(nvmlDevice_t device, unsigned link, nvmlPciInfo_t *pci) { ENTER(device) (void)link; (void)pci; return NVML_ERROR_NOT_SUPPORTED; }

/* ---- what nvitop wants besides ---- */

nvmlReturn_t nvmlDeviceGetFanSpeed(nvmlDevice_t device, unsigned *speed) { ENTER(device) (void)speed; return NVML_ERROR_NOT_SUPPORTED; }
nvmlReturn_t nvmlDeviceGetDisplayActive(nvmlDevice_t device, nvmlEnableState_t *state) { ENTER(device) *state = NVML_FEATURE_DISABLED; return NVML_SUCCESS; }
nvmlReturn_t nvmlDeviceGetDisplayMode(nvmlDevice_t device, nvmlEnableState_t *state) { ENTER(device) *state = NVML_FEATURE_DISABLED; return NVML_SUCCESS; }
nvmlReturn_t nvmlDeviceGetDriverModel_v2(nvmlDevice_t device, nvmlDriverModel_t *current, nvmlDriverModel_t *pending) { ENTER(device) (void)current; (void)pending; return NVML_ERROR_NOT_SUPPORTED; }
nvmlReturn_t nvmlDeviceGetDriverModel(nvmlDevice_t device, nvmlDriverModel_t *current, nvmlDriverModel_t *pending) { return nvmlDeviceGetDriverModel_v2(device, current, pending); }
nvmlReturn_t nvmlDeviceGetCudaComputeCapability(nvmlDevice_t device, int *major, int *minor) {
    ENTER(device)
    *major = !strcmp(p.g->p->key, "A100") ? 8 : !strcmp(p.g->p->key, "B200") ? 10 : 9;
    *minor = 0;
    return NVML_SUCCESS;
}
