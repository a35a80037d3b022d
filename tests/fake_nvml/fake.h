/* A stand-in for the NVIDIA driver library, driven by a scenario file: what the parts share.
 * The grammar and the model are those of slurm_trace/node/devices/{scenario,model}.py, and tests hold the two equal. */
#ifndef FAKE_H
#define FAKE_H
#include <math.h>
#include <stdbool.h>

enum { MAX_GPUS = 32, MAX_INSTANCES = 8, MAX_ITEMS = 256, NAME = 96 };
enum quantity { BUSY, ACTIVE, HMMA, IMMA, DMMA, DFMA, FP64, FP32, FP16, INT, MEMBUSY, CLOCK, MEMORY, POWER, TX, RX, QUANTITIES };
enum reading {
    R_UTILIZATION, R_MEMORY_UTILIZATION, R_MEMORY_USED, R_POWER, R_POWER_AVERAGE, R_POWER_INSTANT, R_MODULE_POWER,
    R_ENERGY, R_SM_CLOCK, R_MEMORY_CLOCK, R_SM_CLOCK_MAX, R_MEMORY_CLOCK_MAX, R_TEMPERATURE, R_PCIE_TX, R_PCIE_RX,
    R_PCIE_TX_BYTES, R_PCIE_RX_BYTES, R_THROTTLE, R_POWER_LIMIT, R_PERSISTENCE, R_GPM /* + metric */
};

struct profile {
    const char *key, *name;
    unsigned long long memory;
    unsigned sms, sm_max, memory_clock, idle_mhz, idle_w, tdp_w, pci_id;
    bool energy, gpm, power_average;
    unsigned module_extra_w;
    bool pcie_counters;
    double period;
    bool virtual_;
};
struct work { double start, end, v[QUANTITIES]; };
struct process { double start, end; unsigned pid; unsigned long long memory; };
struct unit {
    unsigned sms, gi, ci;
    unsigned long long memory;
    char uuid[NAME], profile[32];
    struct work *work;
    struct process *process;
    int works, processes;
};
struct span { double start, end, value; int reading; };
struct fault { char function[64]; double start, end, hang; int code; };
struct xid { double at; unsigned long long code; unsigned gi, ci; };
struct gpu {
    char uuid[NAME], name[NAME], pci[32];
    const struct profile *p;
    unsigned minor;
    struct unit whole, instance[MAX_INSTANCES];
    int instances;
    struct span set[MAX_ITEMS], gone[16], hole[16];
    struct fault fault[MAX_ITEMS];
    double reset[16];
    struct xid xid[64];
    int sets, faults, gones, holes, resets, xids;
    bool lost;
};
struct scenario {
    double epoch, boot;
    bool cycles_sum;
    char driver[80], cuda[16], problem[256];
    struct gpu gpu[MAX_GPUS];
    struct fault init[64];
    int gpus, inits;
};
/* The scenario in force. One that a changed file replaces stays allocated: another thread may be reading it. */
extern struct scenario *scenario_current;
#define S (*scenario_current)

void scenario_load(const char *path);
double scenario_now(void);

double quantity_now(const struct gpu *g, const struct unit *u, enum quantity q, double at);
bool override_of(const struct gpu *g, int reading, double at, double *out);
double reading_of(const struct gpu *g, int reading, double at);
double memory_used(const struct gpu *g, const struct unit *u, double at);
double share_between(const struct gpu *g, const struct unit *u, enum quantity q, double start, double end);
double gpm_counter(const struct gpu *g, const struct unit *u, unsigned metric, double at);
#endif
