/* What the programs of truths.c and held_back.c share: memory of known size, children
   that act one step at a time, and the truth in a file.

   A size is what is touched, page by page. Beside it stand what the first process holds
   when it starts (the base: less than 2 MiB), the page tables (1/512 of what is mapped),
   and what one more process or thread costs. The kernel's own account of a memory cgroup
   agrees within 2 % (benchmarks/measure.py --only oracle, as root). */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/shm.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define KIB ((size_t)1024)
#define MIB (1024 * KIB)
#define PAGE (4 * KIB)
#define PROCESS (140 * KIB) /* of a fork: its stacks, page tables and copied pages */
#define THREAD (28 * KIB)   /* of a thread: its kernel stack and structures */
#define MOST 256            /* children at once */

static double scale = 1;
static double seconds = 0.4;
static const char *folder = "/var/tmp";
static const char *truth_file;
static const char *program; /* this one, to be executed again */

static void fail(const char *what)
{
    fprintf(stderr, "%s: %s: %s\n", program, what, strerror(errno));
    _exit(1);
}

/* Sizes */

static size_t mib(double number)
{
    size_t size = (size_t)(number * scale + 0.5);
    return (size ? size : 1) * MIB;
}

static size_t backed(size_t size) /* with its page tables */
{
    return size + size / 512;
}

static size_t held(void) /* resident bytes of this process */
{
    unsigned long all, resident;
    FILE *file = fopen("/proc/self/statm", "r");
    if (!file || fscanf(file, "%lu %lu", &all, &resident) != 2)
        fail("/proc/self/statm");
    fclose(file);
    return resident * PAGE;
}

/* Memory */

static void touch(char *memory, size_t size, size_t step)
{
    for (size_t at = 0; at < size; at += step)
        ((volatile char *)memory)[at] = (char)(at / PAGE + 1);
}

static void look_at(const char *memory, size_t size)
{
    for (size_t at = 0; at < size; at += PAGE)
        (void)((const volatile char *)memory)[at];
}

static char *map(size_t size, int protection, int flags, int descriptor)
{
    char *memory = mmap(NULL, size, protection, flags, descriptor, 0);
    if (memory == MAP_FAILED)
        fail("mmap");
    return memory;
}

static char *reserve(size_t size) /* private, in pages of 4 KiB, not touched yet */
{
    int flags = MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE;
    char *memory = map(size, PROT_READ | PROT_WRITE, flags, -1);
    madvise(memory, size, MADV_NOHUGEPAGE);
    return memory;
}

static char *take(size_t size)
{
    char *memory = reserve(size);
    touch(memory, size, PAGE);
    return memory;
}

static void release(char *memory, size_t size)
{
    munmap(memory, size);
}

static void write_all(int descriptor, size_t size)
{
    static char block[1 << 20];
    memset(block, 7, sizeof block);
    for (size_t at = 0; at < size; at += sizeof block)
        if (write(descriptor, block, sizeof block) != sizeof block)
            fail("write");
}

static int shared_memory(size_t size) /* a descriptor; nothing is touched */
{
    int descriptor = memfd_create("truth", 0);
    if (descriptor < 0 || ftruncate(descriptor, (off_t)size))
        fail("memfd");
    return descriptor;
}

static char *map_shared(int descriptor, size_t size)
{
    return map(size, PROT_READ | PROT_WRITE, MAP_SHARED, descriptor);
}

static int named_file(const char *where, char *path, size_t room, size_t size)
{
    snprintf(path, room, "%s/truth.%d.XXXXXX", where, getpid());
    int descriptor = mkstemp(path);
    if (descriptor < 0)
        fail(path);
    write_all(descriptor, size);
    return descriptor;
}

static int disk_file(size_t size) /* open, without a name */
{
    char path[4096];
    int descriptor = named_file(folder, path, sizeof path, size);
    unlink(path);
    return descriptor;
}

/* Time */

static void nap(double time)
{
    struct timespec rest = {(time_t)time, (long)((time - (time_t)time) * 1e9)};
    while (nanosleep(&rest, &rest) && errno == EINTR)
        ;
}

static void hold(void) /* a peak: for the time asked for */
{
    nap(seconds);
}

/* Children: each has a line to its parent, on which both take turns */

typedef struct {
    pid_t pid;
    int line;
} Child;

typedef void Body(int line, size_t size);

static char *inherited; /* memory that forks share */

static void ready(int line)
{
    char word = 'r';
    if (send(line, &word, 1, MSG_NOSIGNAL) != 1)
        fail("the other end is gone");
}

static void await(int line)
{
    char word;
    if (read(line, &word, 1) != 1)
        _exit(1);
}

static Child start(Body *body, size_t size)
{
    int ends[2];
    if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends))
        fail("socketpair");
    pid_t pid = fork();
    if (pid < 0)
        fail("fork");
    if (pid == 0) {
        close(ends[0]);
        body(ends[1], size);
        _exit(0);
    }
    close(ends[1]);
    return (Child){pid, ends[0]};
}

static void tell(Child child)
{
    ready(child.line);
}

static void hear(Child child)
{
    char word;
    if (read(child.line, &word, 1) != 1)
        fail("a child failed");
}

static void turn(Child child) /* let it do its next step */
{
    tell(child);
    hear(child);
}

static void end(Child child) /* let it return, and reap it */
{
    int status;
    tell(child);
    close(child.line);
    if (waitpid(child.pid, &status, 0) == child.pid && status)
        fail("a child failed");
}

static void hold_with(const Child *children, int many) /* once all are ready */
{
    for (int i = 0; i < many; i++)
        hear(children[i]);
    hold();
    for (int i = 0; i < many; i++)
        end(children[i]);
}

/* Bodies that several kinds use */

static void holds(int line, size_t size) /* takes memory at once, until it ends */
{
    take(size);
    ready(line);
    await(line);
}

static void holds_when_told(int line, size_t size)
{
    await(line);
    holds(line, size);
}

static void copies_when_told(int line, size_t size) /* writes what it inherited */
{
    await(line);
    touch(inherited, size, PAGE);
    ready(line);
    await(line);
}

static void comes_and_goes(int line, size_t size) /* takes it, gives it back, ... */
{
    for (char word; read(line, &word, 1) == 1;) {
        if (!inherited)
            inherited = take(size);
        else {
            release(inherited, size);
            inherited = NULL;
        }
        ready(line);
    }
}

static void stop(Child child) /* one that comes_and_goes */
{
    kill(child.pid, SIGKILL); /* its siblings hold the line open too */
    waitpid(child.pid, NULL, 0);
}

static void write_truth(size_t size)
{
    FILE *file = truth_file ? fopen(truth_file, "w") : stdout;
    if (!file || fprintf(file, "{\"peak_memory\": %zu}\n", size) < 0 || fflush(file))
        fail("truth");
    if (truth_file)
        fclose(file);
}

/* The command line: KIND [--truth FILE] [--scale S] [--seconds S] [--file PATH] */

typedef struct {
    const char *name;
    size_t (*run)(void);
    const char *what; /* empty: a stage of another kind */
} Kind;

static char *stage_argument;

static void execute(const char *file, const char *stage, size_t argument)
{
    char number[32], sizes[32], times[32];
    snprintf(number, sizeof number, "%zu", argument);
    snprintf(sizes, sizeof sizes, "%f", scale);
    snprintf(times, sizeof times, "%f", seconds);
    execl(file, file, stage, "--scale", sizes, "--seconds", times, "--folder", folder,
          "--stage", number, "--truth", truth_file ? truth_file : "", NULL);
    fail(file);
}

static __attribute__((unused)) size_t argument(void)
{
    return stage_argument ? strtoull(stage_argument, NULL, 10) : 0;
}

static int main_of(int count, char **words, const Kind *kinds)
{
    static char path[4096];
    ssize_t length = readlink("/proc/self/exe", path, sizeof path - 1);
    program = length > 0 ? path : words[0];
    for (int at = 2; at + 1 < count; at += 2) {
        const char *name = words[at];
        char *value = words[at + 1];
        if (!strcmp(name, "--scale"))
            scale = atof(value);
        else if (!strcmp(name, "--seconds"))
            seconds = atof(value);
        else if (!strcmp(name, "--folder"))
            folder = value;
        else if (!strcmp(name, "--truth"))
            truth_file = *value ? value : NULL;
        else if (!strcmp(name, "--stage"))
            stage_argument = value;
    }
    for (const Kind *kind = kinds; kind->name; kind++) {
        if (count == 1 && *kind->what)
            printf("%s\t%s\n", kind->name, kind->what);
        if (count > 1 && !strcmp(kind->name, words[1])) {
            size_t truth = kind->run();
            if (truth)
                write_truth(truth);
            return 0;
        }
    }
    return count == 1 ? 0 : 2;
}
