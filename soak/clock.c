/* The wall clock goes back by an hour after it was read three times. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <time.h>

static int calls;

int clock_gettime(clockid_t id, struct timespec *told) {
    static int (*real)(clockid_t, struct timespec *);
    if (!real) real = dlsym(RTLD_NEXT, "clock_gettime");
    int code = real(id, told);
    if (id == CLOCK_REALTIME && ++calls > 3) told->tv_sec -= 3600;
    return code;
}
