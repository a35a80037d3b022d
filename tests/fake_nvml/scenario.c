/* The scenario file: read when the library is initialised, and again when it has changed. */
#include "fake.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "profiles.h"

static struct scenario none;
struct scenario *scenario_current = &none;
/* The one that is being read. */
static struct scenario *N;

static const char *const quantity_names[QUANTITIES] = {"busy", "active", "hmma", "imma", "dmma", "dfma", "fp64", "fp32",
    "fp16", "int", "membusy", "clock", "memory", "power", "tx", "rx"};
static const char *const reading_names[R_GPM] = {"utilization", "memory_utilization", "memory_used", "power",
    "power_average", "power_instant", "module_power", "energy", "sm_clock", "memory_clock", "sm_clock_max",
    "memory_clock_max", "temperature", "pcie_tx", "pcie_rx", "pcie_tx_bytes", "pcie_rx_bytes", "throttle",
    "power_limit", "persistence"};
static const struct { const char *word; int code; } codes[] = {{"uninitialized", 1}, {"invalid_argument", 2},
    {"not_supported", 3}, {"no_permission", 4}, {"not_found", 6}, {"driver_not_loaded", 9}, {"timeout", 10},
    {"library_missing", 12}, {"missing_symbol", 13}, {"lost", 15}, {"reset_required", 16}, {"driver_mismatch", 18},
    {"no_data", 21}, {"unknown_error", 999}};

/* Virtual time: a file of one double, Unix seconds, mapped once. Without it, the clock of the machine. */
double scenario_now(void) {
    static volatile double *shared;
    static bool asked;
    if (!asked) {
        const char *path = getenv("FAKE_NVML_CLOCK");
        int fd = path ? open(path, O_RDONLY) : -1;
        asked = true;
        if (fd >= 0) {
            void *map = mmap(NULL, sizeof(double), PROT_READ, MAP_SHARED, fd, 0);
            if (map != MAP_FAILED) shared = map;
            close(fd);
        }
    }
    if (shared) return *shared - S.epoch;
    struct timespec ts;
    clock_gettime(CLOCK_REALTIME, &ts);
    return (double)ts.tv_sec + (double)ts.tv_nsec / 1e9 - S.epoch;
}

static double to_time(const char *word) {
    if (!strcmp(word, "start")) return -INFINITY;
    if (!strcmp(word, "end")) return INFINITY;
    return strtod(word, NULL);
}

static const char *option(char **words, int count, const char *key) {
    size_t length = strlen(key);
    for (int i = 0; i < count; i++)
        if (!strncmp(words[i], key, length) && words[i][length] == '=') return words[i] + length + 1;
    return NULL;
}

static struct fault to_fault(char **words) {
    struct fault f = {.start = to_time(words[1]), .end = to_time(words[2])};
    snprintf(f.function, sizeof f.function, "%s", words[0]);
    if (!strncmp(words[3], "hang:", 5)) { f.hang = strtod(words[3] + 5, NULL); return f; }
    f.code = atoi(words[3]);
    for (size_t i = 0; i < sizeof codes / sizeof *codes; i++)
        if (!strcmp(words[3], codes[i].word)) f.code = codes[i].code;
    return f;
}

static struct unit *to_unit(char *word) {
    int card = atoi(word);
    const char *dot = strchr(word, '.');
    if (card < 0 || card >= N->gpus) return NULL;
    return dot ? &N->gpu[card].instance[atoi(dot + 1)] : &N->gpu[card].whole;
}

static bool add_gpu(char **w, int n) {
    if (n < 3 || N->gpus == MAX_GPUS) return false;
    struct gpu *g = &N->gpu[N->gpus];
    for (size_t i = 0; i < sizeof profiles / sizeof *profiles; i++)
        if (!strcmp(profiles[i].key, w[1])) g->p = &profiles[i];
    if (!g->p) return false;
    const char *minor = option(w, n, "minor"), *pci = option(w, n, "pci"), *name = option(w, n, "name");
    snprintf(g->uuid, NAME, "%s", w[2]);
    snprintf(g->name, NAME, "%s", name ? name : g->p->name);
    for (char *c = g->name; *c; c++) if (*c == '_') *c = ' ';
    if (pci) snprintf(g->pci, sizeof g->pci, "%s", pci);
    else snprintf(g->pci, sizeof g->pci, "0000:%02x:00.0", 0x10 + N->gpus);
    g->minor = minor ? (unsigned)atoi(minor) : (unsigned)N->gpus;
    g->whole.sms = g->p->sms;
    g->whole.memory = g->p->memory;
    N->gpus++;
    return true;
}

static bool add_mig(char **w, int n) {
    int card = atoi(w[1]);
    const char *gi = option(w, n, "gi"), *ci = option(w, n, "ci"), *sms = option(w, n, "sms"), *memory = option(w, n, "memory");
    if (n < 8 || card >= N->gpus || !gi || !ci || !sms || !memory || N->gpu[card].instances == MAX_INSTANCES) return false;
    struct unit *u = &N->gpu[card].instance[N->gpu[card].instances++];
    snprintf(u->uuid, NAME, "%s", w[2]);
    snprintf(u->profile, sizeof u->profile, "%s", w[3]);
    u->gi = (unsigned)atoi(gi); u->ci = (unsigned)atoi(ci); u->sms = (unsigned)atoi(sms); u->memory = strtoull(memory, NULL, 10);
    return true;
}

static bool add_work(char **w, int n) {
    struct unit *u = to_unit(w[1]);
    if (!u || n < 4) return false;
    const struct gpu *g = &N->gpu[atoi(w[1])];
    u->work = realloc(u->work, (size_t)(u->works + 1) * sizeof *u->work);
    struct work *k = &u->work[u->works++];
    memset(k, 0, sizeof *k);
    k->start = strtod(w[2], NULL); k->end = strtod(w[3], NULL);
    bool given[QUANTITIES] = {false};
    for (int q = 0; q < QUANTITIES; q++) {
        const char *text = option(w, n, quantity_names[q]);
        if (text) { k->v[q] = strtod(text, NULL); given[q] = true; }
    }
    double *v = k->v, tensor = v[HMMA] + v[IMMA] + v[DMMA] + v[DFMA];
    if (!given[BUSY]) v[BUSY] = 1.0;
    if (!given[ACTIVE]) v[ACTIVE] = v[BUSY];
    if (!given[MEMBUSY]) v[MEMBUSY] = v[BUSY] * 0.4;
    if (!given[CLOCK]) v[CLOCK] = g->p->sm_max;
    if (!given[POWER]) {
        double share = (double)u->sms / g->p->sms, idle = g->instances ? 0.0 : g->p->idle_w;
        double extra = ((double)g->p->tdp_w - (double)g->p->idle_w) * share;
        v[POWER] = idle + extra * (0.3 * v[BUSY] + 0.7 * tensor);
    }
    return true;
}

static bool add_process(char **w, int n) {
    struct unit *u = to_unit(w[1]);
    if (!u || n < 6) return false;
    u->process = realloc(u->process, (size_t)(u->processes + 1) * sizeof *u->process);
    u->process[u->processes++] = (struct process){to_time(w[2]), to_time(w[3]), (unsigned)strtoul(w[4], NULL, 10), strtoull(w[5], NULL, 10)};
    return true;
}

static bool of_a_card(struct gpu *g, char **w, int n) {
    if (!strcmp(w[0], "set") && n >= 6 && g->sets < MAX_ITEMS) {
        struct span s = {to_time(w[3]), to_time(w[4]), strtod(w[5], NULL), -1};
        for (int r = 0; r < R_GPM; r++) if (!strcmp(w[2], reading_names[r])) s.reading = r;
        if (!strncmp(w[2], "gpm:", 4)) s.reading = R_GPM + atoi(w[2] + 4);
        g->set[g->sets++] = s;
        return s.reading >= 0;
    }
    if (!strcmp(w[0], "fault") && n >= 6 && g->faults < MAX_ITEMS) { g->fault[g->faults++] = to_fault(w + 2); return true; }
    if (!strcmp(w[0], "gone") && n >= 4 && g->gones < 16) { g->gone[g->gones++] = (struct span){to_time(w[2]), to_time(w[3]), 0, 0}; return true; }
    if (!strcmp(w[0], "hole") && n >= 4 && g->holes < 16) { g->hole[g->holes++] = (struct span){to_time(w[2]), to_time(w[3]), 0, 0}; return true; }
    if (!strcmp(w[0], "reset") && n >= 3 && g->resets < 16) { g->reset[g->resets++] = strtod(w[2], NULL); return true; }
    if (!strcmp(w[0], "xid") && n >= 4 && g->xids < 64) {
        const char *gi = option(w, n, "gi"), *ci = option(w, n, "ci");
        g->xid[g->xids++] = (struct xid){strtod(w[2], NULL), strtoull(w[3], NULL, 10), gi ? (unsigned)atoi(gi) : ~0u, ci ? (unsigned)atoi(ci) : ~0u};
        return true;
    }
    return false;
}

static bool directive(char **w, int n) {
    if (n < 2) return false;
    if (!strcmp(w[0], "driver")) { snprintf(N->driver, sizeof N->driver, "%s", w[1]); return true; }
    if (!strcmp(w[0], "cuda")) { snprintf(N->cuda, sizeof N->cuda, "%s", w[1]); return true; }
    if (!strcmp(w[0], "epoch")) { N->epoch = strtod(w[1], NULL); return true; }
    if (!strcmp(w[0], "boot")) { N->boot = strtod(w[1], NULL); return true; }
    if (!strcmp(w[0], "cycles")) { N->cycles_sum = !strcmp(w[1], "sum"); return true; }
    if (!strcmp(w[0], "gpu")) return add_gpu(w, n);
    if (!strcmp(w[0], "mig")) return add_mig(w, n);
    if (!strcmp(w[0], "work")) return add_work(w, n);
    if (!strcmp(w[0], "process")) return add_process(w, n);
    if (!strcmp(w[0], "init")) {
        char *words[] = {w[0], w[1], n > 2 ? w[2] : w[1], n > 3 ? w[3] : w[1]};
        if (n < 4 || N->inits == 64) return false;
        N->init[N->inits++] = to_fault(words);
        return true;
    }
    bool known = N->gpus > 0;
    for (int i = 0; i < N->gpus; i++)
        if (!strcmp(w[1], "*") || atoi(w[1]) == i) known = of_a_card(&N->gpu[i], w, n) && known;
    return known;
}

void scenario_load(const char *path) {
    struct stat st;
    FILE *file = path ? fopen(path, "r") : NULL;
    char line[4096];
    N = calloc(1, sizeof *N);
    for (int i = 0; i < S.gpus; i++) N->gpu[i].lost = S.gpu[i].lost;
    snprintf(N->driver, sizeof N->driver, "550.54.15");
    snprintf(N->cuda, sizeof N->cuda, "12.4");
    N->boot = -3600;
    if (!file) snprintf(N->problem, sizeof N->problem, "no scenario: set FAKE_NVML");
    else if (!fstat(fileno(file), &st)) N->epoch = (double)st.st_mtim.tv_sec + (double)st.st_mtim.tv_nsec / 1e9;
    for (int number = 1; file && fgets(line, sizeof line, file); number++) {
        char *words[32], *rest = NULL, *comment = strchr(line, '#');
        int count = 0;
        if (comment) *comment = 0;
        for (char *word = strtok_r(line, " \t\r\n", &rest); word && count < 32; word = strtok_r(NULL, " \t\r\n", &rest)) words[count++] = word;
        if (count && !directive(words, count) && !*N->problem)
            snprintf(N->problem, sizeof N->problem, "line %d: %.100s", number, words[0]);
    }
    if (file) fclose(file);
    if (*N->problem) fprintf(stderr, "fake NVML: %s: %s\n", path ? path : "", N->problem);
    scenario_current = N;
}
