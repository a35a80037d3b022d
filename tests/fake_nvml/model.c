/* What a driver shows of the work. The order of operations is that of model.py, so that doubles come out equal. */
#include "fake.h"

static double idle_of(const struct gpu *g, enum quantity q) {
    if (q == CLOCK) return g->instances ? g->p->sm_max : g->p->idle_mhz;
    return q == POWER && !g->instances ? g->p->idle_w : 0.0;
}

static int units(const struct gpu *g) { return g->instances ? g->instances : 1; }
static const struct unit *unit_of(const struct gpu *g, int i) { return g->instances ? &g->instance[i] : &g->whole; }

double quantity_now(const struct gpu *g, const struct unit *u, enum quantity q, double at) {
    for (int i = 0; i < u->works; i++)
        if (u->work[i].start <= at && at < u->work[i].end) return u->work[i].v[q];
    return idle_of(g, q);
}

/* Integral of one quantity, or of the product of two (`other` < 0: none). */
static double integral(const struct gpu *g, const struct unit *u, enum quantity q, int other, double start, double end) {
    double idle = idle_of(g, q) * (other < 0 ? 1.0 : idle_of(g, (enum quantity)other)), total = idle * (end - start);
    for (int i = 0; i < u->works; i++) {
        const struct work *w = &u->work[i];
        double overlap = fmin(end, w->end) - fmax(start, w->start);
        if (overlap > 0) total += (w->v[q] * (other < 0 ? 1.0 : w->v[other]) - idle) * overlap;
    }
    return total;
}

static double since(const struct gpu *g, double at) {
    double begin = S.boot;
    for (int i = 0; i < g->resets; i++) if (g->reset[i] <= at) begin = fmax(begin, g->reset[i]);
    return begin;
}

double share_between(const struct gpu *g, const struct unit *u, enum quantity q, double start, double end) {
    double mean = 0;
    if (u) return integral(g, u, q, -1, start, end) / (end - start);
    for (int i = 0; i < units(g); i++) {
        const struct unit *part = unit_of(g, i);
        mean += integral(g, part, q, -1, start, end) / (end - start) * ((double)part->sms / g->p->sms);
    }
    return mean;
}

static double watts(const struct gpu *g, double at) {
    double total = g->instances ? g->p->idle_w : 0.0;
    for (int i = 0; i < units(g); i++) total += quantity_now(g, unit_of(g, i), POWER, at);
    return total;
}

static double joules(const struct gpu *g, double start, double end) {
    double total = g->instances ? g->p->idle_w * (end - start) : 0.0;
    for (int i = 0; i < units(g); i++) total += integral(g, unit_of(g, i), POWER, -1, start, end);
    return total;
}

static double busiest(const struct gpu *g, enum quantity q, double at) {
    double most = -INFINITY;
    for (int i = 0; i < units(g); i++) most = fmax(most, quantity_now(g, unit_of(g, i), q, at));
    return most;
}

static double link_now(const struct gpu *g, enum quantity q, double at) {
    double total = 0;
    for (int i = 0; i < units(g); i++) total += quantity_now(g, unit_of(g, i), q, at);
    return total;
}

static double link_bytes(const struct gpu *g, const struct unit *u, enum quantity q, double at) {
    double total = 0;
    if (u) return floor(integral(g, u, q, -1, since(g, at), at) * 1000.0);
    for (int i = 0; i < units(g); i++) total += integral(g, unit_of(g, i), q, -1, since(g, at), at);
    return floor(total * 1000.0);
}

static double throttle(const struct gpu *g, double at) {
    if (busiest(g, BUSY, at) == 0.0) return 1.0;
    return busiest(g, CLOCK, at) < g->p->sm_max ? 4.0 : 0.0;
}

bool override_of(const struct gpu *g, int reading, double at, double *out) {
    bool found = false;
    for (int i = 0; i < g->sets; i++)
        if (g->set[i].reading == reading && g->set[i].start <= at && at < g->set[i].end) { *out = g->set[i].value; found = true; }
    return found;
}

static double nearest(double value) { return floor(value + 0.5); }
static double average_mw(const struct gpu *g, double at) { return nearest(joules(g, at - 1.0, at) * 1000.0); }
static double instant_mw(const struct gpu *g, double at) { return nearest(watts(g, at) * 1000.0); }

double reading_of(const struct gpu *g, int reading, double at) {
    const struct profile *p = g->p;
    double value = 0, module = p->module_extra_w * 1000.0;
    if (override_of(g, reading, at, &value)) return value;
    switch (reading) {
    case R_UTILIZATION: return nearest(share_between(g, 0, BUSY, at - p->period, at) * 100.0);
    case R_MEMORY_UTILIZATION: return nearest(share_between(g, 0, MEMBUSY, at - p->period, at) * 100.0);
    case R_POWER: return (p->power_average ? average_mw(g, at) : instant_mw(g, at)) + module;
    case R_POWER_AVERAGE: return average_mw(g, at);
    case R_POWER_INSTANT: return instant_mw(g, at);
    case R_MODULE_POWER: return instant_mw(g, at) + module;
    case R_ENERGY: return floor(joules(g, since(g, at), at) * 1000.0);
    case R_SM_CLOCK: return busiest(g, CLOCK, at);
    case R_MEMORY_CLOCK: case R_MEMORY_CLOCK_MAX: return p->memory_clock;
    case R_SM_CLOCK_MAX: return p->sm_max;
    case R_TEMPERATURE: return floor(30.0 + 40.0 * busiest(g, BUSY, at));
    case R_PCIE_TX: return floor(link_now(g, TX, at));
    case R_PCIE_RX: return floor(link_now(g, RX, at));
    case R_PCIE_TX_BYTES: return link_bytes(g, 0, TX, at);
    case R_PCIE_RX_BYTES: return link_bytes(g, 0, RX, at);
    case R_THROTTLE: return throttle(g, at);
    case R_POWER_LIMIT: return p->tdp_w * 1000.0;
    case R_PERSISTENCE: return 1;
    default: return 0;
    }
}

double memory_used(const struct gpu *g, const struct unit *u, double at) {
    double used = 560000000.0;
    if (u) return 30000000.0 + floor(quantity_now(g, u, MEMORY, at));
    for (int i = 0; i < units(g); i++) used += floor(quantity_now(g, unit_of(g, i), MEMORY, at));
    return used;
}

static int pipe_of(unsigned metric) {
    switch (metric) {
    case 249: return ACTIVE;
    case 251: return DMMA;
    case 252: return HMMA;
    case 253: return IMMA;
    case 254: return DFMA;
    case 257: return INT;
    case 258: return FP64;
    case 259: return FP32;
    case 260: return FP16;
    default: return -1;
    }
}

double gpm_counter(const struct gpu *g, const struct unit *u, unsigned metric, double at) {
    double begin = since(g, at), total = 0, value;
    if (override_of(g, R_GPM + (int)metric, at, &value)) return value;
    if (metric == 255 || metric == 256) return link_bytes(g, u, metric == 255 ? TX : RX, at);
    for (int i = 0; i < (u ? 1 : units(g)); i++) {
        const struct unit *part = u ? u : unit_of(g, i);
        double cycles = 0;
        if (metric == 250) for (int q = HMMA; q <= DFMA; q++) cycles += integral(g, part, CLOCK, q, begin, at);
        else cycles += integral(g, part, CLOCK, pipe_of(metric), begin, at);
        total += cycles * part->sms;
    }
    if (metric == 248 && !u && g->instances) total = integral(g, &g->instance[0], CLOCK, -1, begin, at) * g->p->sms;
    return floor((S.cycles_sum ? total : total / (u ? u->sms : g->p->sms)) * 1e6);
}
