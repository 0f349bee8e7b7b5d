/* The FAIL_AT-th write below .weigh/ fails with the error FAIL_WITH. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static int seen;

static int is_bad(int fd) {
    char link[64], path[4096];
    snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
    ssize_t length = readlink(link, path, sizeof path - 1);
    if (length < 0) return 0;
    path[length] = 0;
    return strstr(path, "/.weigh/") && ++seen == atoi(getenv("FAIL_AT"));
}

ssize_t write(int fd, const void *from, size_t count) {
    static ssize_t (*real)(int, const void *, size_t);
    if (!real) real = dlsym(RTLD_NEXT, "write");
    if (is_bad(fd)) {
        errno = atoi(getenv("FAIL_WITH"));
        return -1;
    }
    return real(fd, from, count);
}
