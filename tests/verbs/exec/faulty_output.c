/* The FAIL_AT-th call of FAIL_CALL on a path that holds ".out/" fails with FAIL_WITH, and
   with FAIL_ON=1 all later ones as well. Only in weigh itself, not in its tasks. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static int seen;

static int is_bad(const char *call, const char *path) {
    const char *wanted = getenv("FAIL_CALL");
    if (!wanted || getenv("WEIGH_TASK") || strcmp(call, wanted)) return 0;
    if (!strstr(path, ".out/")) return 0;
    seen++;
    int at = atoi(getenv("FAIL_AT"));
    if (seen != at && !(getenv("FAIL_ON") && seen > at)) return 0;
    errno = atoi(getenv("FAIL_WITH"));
    return 1;
}

static int is_bad_fd(const char *call, int fd) {
    char link[64], path[4096];
    snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
    ssize_t length = readlink(link, path, sizeof path - 1);
    if (length < 0) return 0;
    path[length] = 0;
    return is_bad(call, path);
}

#define REAL(name) ((__typeof__(name) *)dlsym(RTLD_NEXT, #name))

int open64(const char *path, int flags, ...) {
    va_list more;
    va_start(more, flags);
    int mode = va_arg(more, int);
    va_end(more);
    return is_bad("open", path) ? -1 : REAL(open64)(path, flags, mode);
}

int rename(const char *from, const char *to) {
    return is_bad("rename", from) ? -1 : REAL(rename)(from, to);
}

int fstat64(int fd, struct stat64 *into) {
    return is_bad_fd("fstat", fd) ? -1 : REAL(fstat64)(fd, into);
}

int close(int fd) {
    int bad = is_bad_fd("close", fd), why = errno;
    int code = REAL(close)(fd);
    if (!bad) return code;
    errno = why;
    return -1;
}

ssize_t pread64(int fd, void *into, size_t count, off64_t at) {
    return is_bad_fd("pread", fd) ? -1 : REAL(pread64)(fd, into, count, at);
}
