/* A libnvidia-ml.so.1 that plays the cards which a text file describes.
 *
 * NVML_STUB_SCRIPT names the file; it is read anew at each call, so that a test can
 * change it while the program runs. One "key=value" a line; what has no line is not
 * supported. Several values joined by ';' are given one a call, the last for ever.
 *
 *   driver=550.54.15, cuda=12040    versions
 *   count=2              cards; init=18 makes nvmlInit fail with that number
 *   0.uuid=GPU-...       and name, bus, total, reserved, used, util, memutil, power,
 *                        smclock, memclock, energy, ecc, rx, tx, xid (0: none)
 *   0.procs=71:4096,72:na    processes with what they hold
 *   0.mps=71:4096            clients of MPS
 *   0.reasons=4              bits of what keeps the clocks low now
 *   0.retired0=3, retired1, pending=1, remapped=1,0,0,0, replays, ecc1 (single-bit)
 *   0.mig=2, 0.mig1.used=..  instances with the same keys
 *   0.handle=4           the number with which opening the card fails
 *   0.lost=15            the number with which every call about the card fails
 *   fail.NAME=3          the number with which that function fails for every card
 *   hang.NAME=60         seconds for which that function does not return
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

enum { OK = 0, INVALID = 2, NOT_SUPPORTED = 3, NOT_FOUND = 6, TOO_SMALL = 7, TIMEOUT = 10 };
enum { CARDS = 8, INSTANCES = 8, KEYS = 512, LINE = 4096 };

typedef struct { char prefix[32]; int card; } Device;
typedef struct { unsigned int pid; unsigned long long used; unsigned int gi, ci; } Process;
typedef struct { unsigned long long total, free, used; } Memory;
typedef struct { unsigned int version; unsigned long long total, reserved, free, used; } Memory2;
typedef struct { unsigned int gpu, memory; } Rates;
typedef struct { Device *device; unsigned long long type, data; unsigned int gi, ci; } Event;
typedef struct {
    char legacy[16]; unsigned int domain, bus, device, id, subsystem; char bus_id[32];
} Pci;
typedef struct { Device *device; unsigned long long seen; } Events;

static Device cards[CARDS], instances[CARDS][INSTANCES];
static struct { char key[64]; int asked; } turns[KEYS];

/* Begin every list of values anew, for the next test in this process. */
void nvml_stub_reset(void) { memset(turns, 0, sizeof turns); }

static int turn_of(const char *key) {
    int i = 0;
    for (; i < KEYS - 1 && turns[i].key[0] && strcmp(turns[i].key, key); i++)
        ;
    snprintf(turns[i].key, sizeof turns[i].key, "%s", key);
    return turns[i].asked++;
}

/* Look up a key; 0 where the script has no such line. */
static int look(const char *key, char *value) {
    char line[LINE];
    size_t length = strlen(key);
    const char *path = getenv("NVML_STUB_SCRIPT");
    FILE *file = path ? fopen(path, "r") : NULL;
    int found = 0;
    while (file && !found && fgets(line, sizeof line, file)) {
        if (strncmp(line, key, length) || line[length] != '=')
            continue;
        line[strcspn(line, "\n")] = 0;
        char *start = line + length + 1, *next = strchr(start, ';');
        for (int turn = next ? turn_of(key) : 0; turn > 0 && next; turn--) {
            start = next + 1;
            next = strchr(start, ';');
        }
        if (next)
            *next = 0;
        strcpy(value, start);
        found = 1;
    }
    if (file)
        fclose(file);
    return found;
}

static int look_up(const Device *device, const char *name, char *value) {
    char key[128];
    snprintf(key, sizeof key, "%s.%s", device->prefix, name);
    return look(key, value);
}

/* Hang or fail as the script says for this function and card; else OK. */
static int enter(const char *function, const Device *device) {
    char key[128], value[LINE];
    snprintf(key, sizeof key, "hang.%s", function);
    if (look(key, value)) {
        struct timespec left = {atoi(value), 0};
        nanosleep(&left, NULL);
    }
    snprintf(key, sizeof key, "fail.%s", function);
    if (look(key, value))
        return atoi(value);
    if (device) {
        snprintf(key, sizeof key, "%d.lost", device->card);
        if (look(key, value))
            return atoi(value);
    }
    return OK;
}

static int number(const Device *device, const char *name, unsigned long long *out) {
    char value[LINE];
    if (!look_up(device, name, value))
        return NOT_SUPPORTED;
    if (!strcmp(value, "na"))
        return NOT_SUPPORTED;
    *out = strtoull(value, NULL, 10);
    return OK;
}

static int small(const char *function, const Device *device, const char *name,
                 unsigned int *out) {
    unsigned long long value;
    int failed = enter(function, device);
    if (failed || (failed = number(device, name, &value)))
        return failed;
    *out = (unsigned int)value;
    return OK;
}

static int text(const char *function, const Device *device, const char *name, char *out,
                unsigned int size) {
    char value[LINE];
    int failed = enter(function, device);
    if (failed)
        return failed;
    if (!look_up(device, name, value))
        return NOT_SUPPORTED;
    snprintf(out, size, "%s", value);
    return OK;
}

/* Functions that give one figure of a card: a number of 32 or 64 bits, or a text. */
#define SMALL(function, name) \
    int function(Device *device, unsigned int *out) { return small(#function, device, name, out); }
#define LARGE(function, name) \
    int function(Device *device, unsigned long long *out) { \
        int failed = enter(#function, device); \
        return failed ? failed : number(device, name, out); \
    }
#define TEXT(function, name) \
    int function(Device *device, char *out, unsigned int size) { \
        return text(#function, device, name, out, size); \
    }
TEXT(nvmlDeviceGetUUID, "uuid")
TEXT(nvmlDeviceGetName, "name")
SMALL(nvmlDeviceGetPowerUsage, "power")
SMALL(nvmlDeviceGetPcieReplayCounter, "replays")
SMALL(nvmlDeviceGetRetiredPagesPendingStatus, "pending")
SMALL(nvmlDeviceGetMaxMigDeviceCount, "mig")
LARGE(nvmlDeviceGetTotalEnergyConsumption, "energy")
LARGE(nvmlDeviceGetCurrentClocksThrottleReasons, "reasons")

int nvmlInitWithFlags(unsigned int flags) {
    char value[LINE];
    (void)flags;
    int failed = enter("nvmlInitWithFlags", NULL);
    if (failed)
        return failed;
    return look("init", value) ? atoi(value) : OK;
}

int nvmlShutdown(void) { return enter("nvmlShutdown", NULL); }

const char *nvmlErrorString(int code) {
    static char words[32];
    snprintf(words, sizeof words, "stub error %d", code);
    return words;
}

int nvmlSystemGetDriverVersion(char *out, unsigned int size) {
    char value[LINE];
    if (!look("driver", value))
        return NOT_SUPPORTED;
    snprintf(out, size, "%s", value);
    return OK;
}

int nvmlSystemGetCudaDriverVersion_v2(int *version) {
    char value[LINE];
    *version = look("cuda", value) ? atoi(value) : 0;
    return OK;
}

int nvmlDeviceGetCount_v2(unsigned int *count) {
    char value[LINE];
    *count = look("count", value) ? (unsigned int)atoi(value) : 0;
    return enter("nvmlDeviceGetCount_v2", NULL);
}

int nvmlDeviceGetHandleByIndex_v2(unsigned int index, Device **device) {
    char value[LINE];
    if (index >= CARDS)
        return INVALID;
    Device *card = &cards[index];
    snprintf(card->prefix, sizeof card->prefix, "%u", index);
    card->card = (int)index;
    *device = card;
    if (look_up(card, "handle", value))
        return atoi(value);
    return enter("nvmlDeviceGetHandleByIndex_v2", card);
}

int nvmlDeviceGetPciInfo_v3(Device *device, Pci *pci) {
    memset(pci, 0, sizeof *pci);
    return text("nvmlDeviceGetPciInfo_v3", device, "bus", pci->bus_id, sizeof pci->bus_id);
}

int nvmlDeviceGetMemoryInfo(Device *device, Memory *memory) {
    unsigned long long reserved = 0;
    int failed = enter("nvmlDeviceGetMemoryInfo", device);
    if (failed || (failed = number(device, "total", &memory->total)) ||
        (failed = number(device, "used", &memory->used)))
        return failed;
    number(device, "reserved", &reserved);
    memory->used += reserved;
    memory->free = memory->total - memory->used;
    return OK;
}

/* Leave a letter in SCRIPT.looks.CARD.PROCESS, for who waits until a card was read. */
static void note_look(const Device *device) {
    char name[LINE];
    const char *path = getenv("NVML_STUB_SCRIPT");
    snprintf(name, sizeof name, "%s.looks.%d.%d", path, device->card, (int)getpid());
    FILE *file = path ? fopen(name, "a") : NULL;
    if (file) {
        fputc('.', file);
        fclose(file);
    }
}

int nvmlDeviceGetMemoryInfo_v2(Device *device, Memory2 *memory) {
    note_look(device);
    int failed = enter("nvmlDeviceGetMemoryInfo_v2", device);
    if (failed || (failed = number(device, "reserved", &memory->reserved)) ||
        (failed = number(device, "total", &memory->total)) ||
        (failed = number(device, "used", &memory->used)))
        return failed;
    memory->free = memory->total - memory->reserved - memory->used;
    return OK;
}

static int processes(const char *function, Device *device, const char *name,
                     unsigned int *count, Process *out) {
    char value[LINE], *rest = NULL;
    unsigned int found = 0, room = *count;
    int failed = enter(function, device);
    if (failed)
        return failed;
    char counted[64];
    snprintf(counted, sizeof counted, "%s.%s", device->prefix, name);
    /* the two calls of one question get the same of several values */
    for (int i = 0; room && i < KEYS && turns[i].key[0]; i++)
        if (!strcmp(turns[i].key, counted) && turns[i].asked)
            turns[i].asked--;
    if (!look_up(device, name, value))
        return NOT_SUPPORTED;
    for (char *word = strtok_r(value, ",", &rest); word; word = strtok_r(NULL, ",", &rest)) {
        char *held = strchr(word, ':');
        if (found < room && out) {
            out[found].pid = (unsigned int)strtoul(word, NULL, 10);
            out[found].used = held && strcmp(held, ":na") ? strtoull(held + 1, NULL, 10) : ~0ULL;
            out[found].gi = out[found].ci = ~0U;
        }
        found++;
    }
    *count = found;
    return found > room ? TOO_SMALL : OK;
}

#define PROCESSES(function, name) \
    int function(Device *device, unsigned int *count, Process *out) { \
        return processes(#function, device, name, count, out); \
    }
PROCESSES(nvmlDeviceGetComputeRunningProcesses_v3, "procs")
PROCESSES(nvmlDeviceGetComputeRunningProcesses_v2, "procs")
PROCESSES(nvmlDeviceGetMPSComputeRunningProcesses_v3, "mps")

int nvmlDeviceGetUtilizationRates(Device *device, Rates *rates) {
    int failed = small("nvmlDeviceGetUtilizationRates", device, "util", &rates->gpu);
    unsigned long long memory = 0;
    number(device, "memutil", &memory);
    rates->memory = (unsigned int)memory;
    return failed;
}

int nvmlDeviceGetClockInfo(Device *device, int type, unsigned int *clock) {
    return small("nvmlDeviceGetClockInfo", device, type == 2 ? "memclock" : "smclock", clock);
}

int nvmlDeviceGetTotalEccErrors(Device *device, int type, int counter, unsigned long long *out) {
    int failed = enter("nvmlDeviceGetTotalEccErrors", device);
    if (failed)
        return failed;
    return counter == 0 ? number(device, type == 1 ? "ecc" : "ecc1", out) : INVALID;
}

int nvmlDeviceGetRetiredPages(Device *device, int cause, unsigned int *count,
                              unsigned long long *pages) {
    unsigned int room = *count;
    int failed = small("nvmlDeviceGetRetiredPages", device, cause ? "retired1" : "retired0", count);
    for (unsigned int i = 0; pages && !failed && i < *count && i < room; i++)
        pages[i] = i;
    return !failed && *count > room ? TOO_SMALL : failed;
}

int nvmlDeviceGetRemappedRows(Device *device, unsigned int *corrected, unsigned int *uncorrected,
                              unsigned int *pending, unsigned int *failure) {
    char value[LINE];
    int failed = enter("nvmlDeviceGetRemappedRows", device);
    if (failed || !look_up(device, "remapped", value))
        return failed ? failed : NOT_SUPPORTED;
    sscanf(value, "%u,%u,%u,%u", corrected, uncorrected, pending, failure);
    return OK;
}

int nvmlDeviceGetPcieThroughput(Device *device, int counter, unsigned int *kilobytes) {
    return small("nvmlDeviceGetPcieThroughput", device, counter ? "rx" : "tx", kilobytes);
}

int nvmlEventSetCreate(Events **set) {
    *set = calloc(1, sizeof **set);
    return enter("nvmlEventSetCreate", NULL);
}

int nvmlDeviceRegisterEvents(Device *device, unsigned long long types, Events *set) {
    unsigned long long xid;
    (void)types;
    set->device = device;
    int failed = enter("nvmlDeviceRegisterEvents", device);
    return failed ? failed : number(device, "xid", &xid);
}

int nvmlEventSetWait_v2(Events *set, Event *event, unsigned int milliseconds) {
    unsigned long long xid = 0;
    (void)milliseconds;
    int failed = enter("nvmlEventSetWait_v2", NULL);
    if (failed)
        return failed;
    if (number(set->device, "xid", &xid) || !xid || xid == set->seen)
        return TIMEOUT;
    memset(event, 0, sizeof *event);
    event->device = set->device;
    event->data = set->seen = xid;
    return OK;
}

int nvmlEventSetFree(Events *set) {
    free(set);
    return OK;
}

int nvmlDeviceGetMigMode(Device *device, unsigned int *current, unsigned int *pending) {
    unsigned int count;
    int failed = small("nvmlDeviceGetMigMode", device, "mig", &count);
    *current = *pending = !failed;
    return failed;
}

int nvmlDeviceGetMigDeviceHandleByIndex(Device *device, unsigned int index, Device **out) {
    unsigned int count = 0;
    char value[LINE];
    int failed = small("nvmlDeviceGetMigDeviceHandleByIndex", device, "mig", &count);
    if (failed)
        return failed;
    if (index >= count || index >= INSTANCES)
        return NOT_FOUND;
    Device *instance = &instances[device->card][index];
    snprintf(instance->prefix, sizeof instance->prefix, "%d.mig%u", device->card, index);
    instance->card = device->card;
    *out = instance;
    return look_up(instance, "handle", value) ? atoi(value) : OK;
}
