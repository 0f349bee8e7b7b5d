/* More programs as in truths.c, held back: nobody looks at these while changing how
   weigh measures, only afterwards. Otherwise the table shows what was fitted to it.

     cc -O1 -pthread -static -o held_back held_back.c */
#include "truth.h"

static void has_a_child(int line, size_t size)
{
    Child grandchild = start(copies_when_told, size / 2);
    ready(line);
    await(line);
    turn(grandchild);
    take(size / 4);
    ready(line);
    await(line);
    end(grandchild);
}

static size_t cow_grandchild(void) /* the copies are made two forks further down */
{
    size_t size = mib(192), base = held();
    inherited = take(size);
    Child child = start(has_a_child, size);
    hear(child);
    nap(0.5);
    turn(child);
    hold();
    end(child);
    return base + 2 * (PROCESS + size / 512) + backed(size) + size / 2 + size / 4;
}

static void allocates_anew(int line, size_t size) /* faults, but copies nothing */
{
    for (int i = 0; i < 12; i++) {
        char *memory = take(size / 4);
        nap(0.05);
        release(memory, size / 4);
    }
    take(size / 8);
    ready(line);
    await(line);
}

static size_t cow_malloc(void)
{
    size_t size = mib(192), base = held();
    inherited = take(size);
    Child one = start(allocates_anew, size);
    hear(one);
    Child other = start(allocates_anew, size);
    hear(other);
    hold();
    end(one);
    end(other);
    return base + 2 * (PROCESS + size / 512) + backed(size) + size / 8 + size / 4;
}

static size_t pool_uneven(void) /* different growth; one dies early and is replaced */
{
    size_t size = mib(160), base = held(), own = 0;
    Child children[6];
    inherited = take(size);
    for (int i = 0; i < 6; i++) {
        size_t growth = mib(12 * (i + 1));
        children[i] = start(holds, growth);
        hear(children[i]);
        nap(0.1);
        own += backed(growth);
    }
    hold();
    end(children[5]);
    children[5] = start(holds, mib(24));
    hear(children[5]);
    hold();
    for (int i = 0; i < 6; i++)
        end(children[i]);
    return base + backed(size) + own + 6 * (PROCESS + size / 512);
}

static size_t file_forks(void) /* forks write to a private file mapping, in turn */
{
    size_t size = mib(160), base = held();
    int file = disk_file(size);
    Child children[4];
    inherited = map(size, PROT_READ | PROT_WRITE, MAP_PRIVATE, file);
    look_at(inherited, size);
    for (int i = 0; i < 4; i++)
        children[i] = start(copies_when_told, size / 2);
    for (int i = 0; i < 4; i++) {
        nap(0.2);
        turn(children[i]);
    }
    hold();
    for (int i = 0; i < 4; i++)
        end(children[i]);
    return base + MIB + backed(size) + 4 * (PROCESS + backed(size) / 2);
}

static size_t nodump_late(void) /* hides only after it has shared its memory */
{
    size_t size = mib(192), own = mib(64), base = held();
    Child children[2];
    inherited = take(size);
    for (int i = 0; i < 2; i++)
        children[i] = start(holds_when_told, own);
    nap(0.3);
    prctl(PR_SET_DUMPABLE, 0);
    nap(0.3);
    for (int i = 0; i < 2; i++)
        turn(children[i]);
    take(own);
    hold();
    for (int i = 0; i < 2; i++)
        end(children[i]);
    return base + backed(size) + 2 * (PROCESS + size / 512) + 3 * backed(own);
}

static void *executes(void *unused)
{
    nap(0.3);
    release(inherited, mib(192));
    execute(program, "leader_stage", 0);
    return unused;
}

static size_t leader_stage(void)
{
    size_t base = held();
    take(mib(256));
    hold();
    return base + backed(mib(256));
}

static size_t leader_exec(void) /* a thread executes a program; its leader has ended */
{
    pthread_t thread;
    inherited = take(mib(192));
    if (pthread_create(&thread, NULL, executes, NULL))
        fail("thread");
    pthread_exit(NULL);
}

static void touches_sparsely(int line, size_t size)
{
    touch(inherited, size, 2 * MIB);
    ready(line);
    await(line);
}

static size_t tables_shared(void) /* one page in 2 MiB, shared; tables in each of 6 */
{
    size_t count = mib(24) / PAGE, size = count * 2 * MIB, base = held();
    Child children[6];
    inherited = map_shared(shared_memory(size), size);
    for (int i = 0; i < 6; i++)
        children[i] = start(touches_sparsely, size);
    hold_with(children, 6);
    return base + 6 * PROCESS + 7 * count * PAGE;
}

static size_t tmpfs_rewritten(void) /* written, emptied, written again */
{
    size_t size = mib(160), own = mib(96), base = held();
    char path[4096];
    int file = named_file("/dev/shm", path, sizeof path, size);
    nap(0.3);
    if (ftruncate(file, 0) || lseek(file, 0, SEEK_SET))
        fail("ftruncate");
    char *memory = take(own);
    nap(0.3);
    write_all(file, size / 2);
    release(memory, own);
    nap(0.2);
    write_all(file, size / 2);
    take(own);
    close(file);
    hold();
    unlink(path);
    return base + MIB + size + backed(own);
}

static size_t spikes_three(void) /* of three processes, two at a time */
{
    size_t size = mib(128), base = held();
    Child children[3];
    for (int i = 0; i < 3; i++)
        children[i] = start(comes_and_goes, size);
    for (int round = 0; round < 6; round++) {
        Child one = children[round % 3], other = children[(round + 1) % 3];
        turn(one);
        turn(other);
        nap(0.1);
        turn(one);
        turn(other);
        nap(0.1);
    }
    for (int i = 0; i < 3; i++)
        stop(children[i]);
    return base + 3 * PROCESS + 2 * backed(size);
}

static void looks_and_takes(int line, size_t size)
{
    look_at(inherited, size);
    take(size / 32);
    ready(line);
    await(line);
}

static size_t churn_growing(void) /* 30 forks, replaced while their parent grows */
{
    size_t size = mib(128), base = held(), own = 0;
    Child children[30];
    inherited = take(size);
    for (int i = 0; i < 60; i++) {
        if (i >= 30)
            end(children[i % 30]);
        own += backed(mib(1));
        take(mib(1));
        children[i % 30] = start(looks_and_takes, size);
        hear(children[i % 30]);
        nap(0.01);
    }
    hold();
    for (int i = 0; i < 30; i++)
        end(children[i]);
    return base + backed(size) + own +
           30 * (PROCESS + size / 512 + own / 512 + backed(size / 32));
}

static void opens_and_ends(int line, size_t size)
{
    int file = memfd_create("passed", 0);
    write_all(file, size);
    if (fcntl(file, F_DUPFD, 100) < 0)
        fail("dup");
    ready(line);
    await(line);
}

static size_t memfd_twice(void) /* two memfds of children, one of them left */
{
    size_t size = mib(96), own = mib(64), base = held();
    Child one = start(opens_and_ends, size), other = start(opens_and_ends, size);
    hear(one);
    hear(other);
    hold();
    end(one);
    nap(0.3);
    take(own);
    hold();
    end(other);
    return base + 2 * (PROCESS + MIB) + 2 * size;
}

static const Kind KINDS[] = {
    {"cow_grandchild", cow_grandchild, "a grandchild writes what was shared"},
    {"cow_malloc", cow_malloc, "forks take and free, and copy nothing"},
    {"pool_uneven", pool_uneven, "6 forks of different growth, one replaced"},
    {"file_forks", file_forks, "forks write a private file mapping"},
    {"nodump_late", nodump_late, "not dumpable after the fork"},
    {"leader_exec", leader_exec, "a thread executes, its leader has ended"},
    {"leader_stage", leader_stage, ""},
    {"tables_shared", tables_shared, "6 page tables of one sparse segment"},
    {"tmpfs_rewritten", tmpfs_rewritten, "a tmpfs file, emptied and rewritten"},
    {"spikes_three", spikes_three, "3 processes, spikes of two at a time"},
    {"churn_growing", churn_growing, "30 forks, replaced while the parent grows"},
    {"memfd_twice", memfd_twice, "two memfds, one of them given back"},
    {NULL, NULL, NULL},
};

int main(int count, char **words)
{
    return main_of(count, words, KINDS);
}
