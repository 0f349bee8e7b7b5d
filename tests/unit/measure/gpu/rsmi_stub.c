/* A librocm_smi64.so that plays the cards which a text file describes: RSMI_STUB_SCRIPT
 * names it, it is read anew at each call, and has one "key=value" a line: count, init,
 * 0.name, 0.id, 0.bus, 0.total, 0.used, 0.busy, 0.membusy, 0.power (microwatts),
 * 0.energy, and procs=71:0:4096,72:0+1:na: process, its cards, its bytes.
 */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { OK = 0, NOT_SUPPORTED = 2, NOT_FOUND = 10, LINE = 4096 };
typedef struct { uint32_t pid, pasid; uint64_t vram, sdma; uint32_t occupancy; } Process;

static int look(int card, const char *name, char *value) {
    char line[LINE], key[64];
    snprintf(key, sizeof key, card < 0 ? "%s=" : "%2$d.%1$s=", name, card);
    FILE *file = fopen(getenv("RSMI_STUB_SCRIPT"), "r");
    int found = 0;
    while (file && !found && fgets(line, sizeof line, file))
        if (!strncmp(line, key, strlen(key))) {
            line[strcspn(line, "\n")] = 0;
            strcpy(value, line + strlen(key));
            found = 1;
        }
    if (file)
        fclose(file);
    return found;
}

static int number(int card, const char *name, uint64_t *out) {
    char value[LINE];
    if (!look(card, name, value))
        return NOT_SUPPORTED;
    *out = strtoull(value, NULL, 0);
    return OK;
}

static int small(int card, const char *name, uint32_t *out) {
    uint64_t value;
    int failed = number(card, name, &value);
    if (!failed)
        *out = (uint32_t)value;
    return failed;
}

int rsmi_init(uint64_t flags) {
    uint32_t code = OK;
    (void)flags;
    small(-1, "init", &code);
    return (int)code;
}
int rsmi_shut_down(void) { return OK; }
int rsmi_num_monitor_devices(uint32_t *count) { return small(-1, "count", count); }
int rsmi_dev_unique_id_get(uint32_t card, uint64_t *id) { return number((int)card, "id", id); }
int rsmi_dev_pci_id_get(uint32_t card, uint64_t *bus) { return number((int)card, "bus", bus); }
int rsmi_dev_busy_percent_get(uint32_t card, uint32_t *out) { return small((int)card, "busy", out); }
int rsmi_dev_name_get(uint32_t card, char *name, size_t size) {
    char value[LINE];
    if (!look((int)card, "name", value))
        return NOT_SUPPORTED;
    snprintf(name, size, "%s", value);
    return OK;
}
int rsmi_dev_memory_busy_percent_get(uint32_t card, uint32_t *out) {
    return small((int)card, "membusy", out);
}
int rsmi_dev_memory_total_get(uint32_t card, uint32_t type, uint64_t *out) {
    return type ? NOT_SUPPORTED : number((int)card, "total", out);
}
int rsmi_dev_memory_usage_get(uint32_t card, uint32_t type, uint64_t *out) {
    return type ? NOT_SUPPORTED : number((int)card, "used", out);
}
int rsmi_dev_power_ave_get(uint32_t card, uint32_t sensor, uint64_t *out) {
    return sensor ? NOT_SUPPORTED : number((int)card, "power", out);
}
int rsmi_dev_power_get(uint32_t card, uint64_t *out, uint32_t *kind) {
    *kind = 1;
    return number((int)card, "power_now", out);
}
int rsmi_dev_energy_count_get(uint32_t card, uint64_t *out, float *unit, uint64_t *stamp) {
    *unit = 15.25f;
    *stamp = 1;
    return number((int)card, "energy", out);
}

/* Call back for each process: its id, cards ("0+1") and bytes. */
static int each(uint32_t wanted, Process *out, uint32_t *cards, uint32_t *count) {
    char value[LINE], *rest = NULL, *more = NULL;
    uint32_t found = 0;
    if (!look(-1, "procs", value))
        return NOT_SUPPORTED;
    for (char *word = strtok_r(value, ",", &rest); word; word = strtok_r(NULL, ",", &rest)) {
        uint32_t pid = (uint32_t)strtoul(word, NULL, 10);
        char *places = strchr(word, ':') + 1, *bytes = strchr(places, ':');
        *bytes++ = 0;
        if (cards && pid == wanted)
            for (char *one = strtok_r(places, "+", &more); one; one = strtok_r(NULL, "+", &more))
                cards[found++] = (uint32_t)atoi(one);
        else if (!cards && found < *count) {
            memset(&out[found], 0, sizeof *out);
            out[found].pid = pid;
            out[found++].vram = strtoull(bytes, NULL, 10);
        }
    }
    *count = found;
    return OK;
}
int rsmi_compute_process_info_get(Process *out, uint32_t *count) { return each(0, out, NULL, count); }
int rsmi_compute_process_gpus_get(uint32_t pid, uint32_t *cards, uint32_t *count) {
    return each(pid, NULL, cards, count);
}
