/* Programs that know their own peak memory, one for each way to measure it wrongly.

     cc -O1 -pthread -static -o truths truths.c && ./truths cow_late --scale 0.5

   Without arguments it lists them. benchmarks/measure.py runs them all, tests a part. */
#include "truth.h"

/* Pages shared by a fork, and copied later */

static size_t cow_late(void)
{
    size_t size = mib(192), base = held();
    inherited = take(size);
    Child child = start(copies_when_told, size);
    nap(0.6);
    turn(child);
    hold();
    end(child);
    return base + PROCESS + 2 * backed(size);
}

static size_t cow_parent(void)
{
    size_t size = mib(192), base = held();
    inherited = take(size);
    Child child = start(copies_when_told, size);
    nap(0.6);
    touch(inherited, size, PAGE);
    hold();
    kill(child.pid, SIGKILL);
    return base + PROCESS + 2 * backed(size);
}

static void copies_slowly(int line, size_t size)
{
    for (size_t at = 0; at < 20; at++) {
        touch(inherited + at * (size / 20 / PAGE * PAGE), size / 20, PAGE);
        nap(0.1);
    }
    ready(line);
    await(line);
}

static size_t cow_slow(void)
{
    size_t size = mib(200), base = held();
    inherited = take(size);
    Child child = start(copies_slowly, size);
    hear(child);
    hold();
    end(child);
    return base + PROCESS + 2 * backed(size);
}

static size_t cow_crowd(void)
{
    size_t size = mib(128), base = held();
    Child children[4];
    inherited = take(size);
    for (int i = 0; i < 4; i++)
        children[i] = start(copies_when_told, size / 2);
    for (int i = 0; i < 4; i++) {
        nap(0.3);
        turn(children[i]);
    }
    hold();
    for (int i = 0; i < 4; i++)
        end(children[i]);
    return base + 4 * PROCESS + backed(size) + 4 * (backed(size) / 2);
}

static void outlives(int line, size_t size)
{
    size_t base = held() - size; /* before it is alone, its own copy of the rest */
    touch(inherited, size / 2, PAGE);
    ready(line);
    while (getppid() != 1 && read(line, &base, 0) == 0 && recv(line, &base, 1, 0) > 0)
        ;
    take(size);
    hold();
    write_truth(MIB / 2 + 2 * backed(size));
    _exit(0);
}

static size_t cow_orphan(void) /* the parent ends: what was shared is the child's */
{
    size_t size = mib(192);
    inherited = take(size);
    Child child = start(outlives, size);
    hear(child);
    nap(0.3);
    _exit(0);
}

/* Shared memory */

static int descriptor;

static void attaches_when_told(int line, size_t size)
{
    await(line);
    touch(map_shared(descriptor, size), size, PAGE);
    ready(line);
    await(line);
}

static size_t shm_late(void)
{
    size_t size = mib(256), base = held();
    descriptor = shared_memory(size);
    Child children[3];
    for (int i = 0; i < 3; i++)
        children[i] = start(attaches_when_told, size);
    for (int i = 0; i < 3; i++) {
        turn(children[i]);
        nap(0.4);
    }
    hold();
    for (int i = 0; i < 3; i++)
        end(children[i]);
    return base + 3 * PROCESS + size + 3 * (size / 512);
}

static size_t shm_left(void) /* whoever wrote it has ended; a descriptor keeps it */
{
    size_t size = mib(192), own = mib(64), base = held();
    descriptor = shared_memory(size);
    Child child = start(attaches_when_told, size);
    turn(child);
    end(child);
    nap(0.3);
    take(own);
    hold();
    return base + size + backed(own);
}

static size_t tmpfs_file(void) /* written, closed, not mapped by anybody */
{
    size_t size = mib(192), own = mib(64), base = held();
    char path[4096];
    close(named_file("/dev/shm", path, sizeof path, size));
    nap(0.3);
    take(own);
    hold();
    unlink(path);
    return base + MIB + size + backed(own);
}

static size_t memfd(void) /* written, open, not mapped by anybody */
{
    size_t size = mib(192), own = mib(64), base = held();
    descriptor = memfd_create("truth", 0);
    write_all(descriptor, size);
    nap(0.3);
    take(own);
    hold();
    return base + MIB + size + backed(own);
}

static size_t shm_sysv(void) /* a System V segment, left without anybody attached */
{
    size_t size = mib(160), own = mib(64), base = held();
    int id = shmget(IPC_PRIVATE, size, IPC_CREAT | 0600);
    char *memory = shmat(id, NULL, 0);
    if (id < 0 || memory == (char *)-1)
        fail("shmget");
    nap(0.3);
    touch(memory, size, PAGE);
    shmdt(memory);
    nap(0.3);
    take(own);
    hold();
    shmctl(id, IPC_RMID, NULL);
    return base + size + backed(own);
}

/* Pools of forks */

static size_t pool(void)
{
    size_t size = mib(256), own = mib(48), base = held();
    Child children[4];
    inherited = take(size);
    for (int round = 0; round < 3; round++) {
        for (int i = 0; i < 4; i++)
            children[i] = start(holds_when_told, own);
        nap(0.3);
        for (int i = 0; i < 4; i++)
            turn(children[i]);
        hold();
        for (int i = 0; i < 4; i++)
            end(children[i]);
    }
    return base + backed(size) + 4 * (PROCESS + size / 512 + backed(own));
}

static size_t churn(int many) /* always that many; the oldest goes, a new one comes */
{
    size_t size = mib(160), own = mib(4), base = held();
    Child children[MOST];
    inherited = take(size);
    for (int i = 0; i < 3 * many; i++) {
        if (i >= many)
            end(children[i % many]);
        children[i % many] = start(holds, own);
        hear(children[i % many]);
        nap(0.005);
    }
    hold();
    for (int i = 0; i < many; i++)
        end(children[i]);
    return base + backed(size) + many * (PROCESS + size / 512 + backed(own));
}

static size_t churn50(void)
{
    return churn(50);
}

static size_t churn100(void)
{
    return churn(100);
}

static void collects(int line, size_t size) /* R's collector marks what it inherited */
{
    nap(0.1);
    touch(inherited, size, 4 * PAGE);
    take(size / 4);
    ready(line);
    await(line);
}

static size_t mclapply(void)
{
    size_t size = mib(256), base = held();
    inherited = take(size);
    for (int round = 0; round < 4; round++) {
        Child one = start(collects, size), other = start(collects, size);
        hear(one);
        hear(other);
        hold();
        end(one);
        end(other);
    }
    return base + backed(size) + 2 * (PROCESS + size / 512 + size / 2);
}

static size_t joblib_worker(void) /* executed anew: maps the array that was dumped */
{
    size_t size = (size_t)lseek(3, 0, SEEK_END);
    look_at(map(size, PROT_READ, MAP_SHARED, 3), size);
    take(size / 8);
    ready(4);
    await(4);
    return 0;
}

static size_t joblib(void)
{
    size_t size = mib(128), base = held();
    char path[4096];
    take(size);
    int dumped = named_file("/dev/shm", path, sizeof path, size);
    int ends[4][2];
    for (int i = 0; i < 4; i++) {
        if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends[i]))
            fail("socketpair");
        if (fork() == 0) {
            int array = dup(dumped), line = dup(ends[i][1]); /* above 3 and 4 */
            dup2(array, 3);
            dup2(line, 4);
            truth_file = NULL;
            execute(program, "joblib_worker", 0);
        }
        close(ends[i][1]);
    }
    close(dumped);
    for (int i = 0; i < 4; i++)
        hear((Child){0, ends[i][0]});
    hold();
    unlink(path);
    for (int i = 0; i < 4; i++)
        tell((Child){0, ends[i][0]});
    while (wait(NULL) > 0)
        ;
    return base + MIB + backed(size) + size + 4 * (2 * PROCESS + size / 512 + size / 8);
}

static void moves_what_it_inherited(int line, size_t size)
{
    int flags = MREMAP_MAYMOVE | MREMAP_FIXED;
    char *place = reserve(size);
    if (mremap(inherited, size, size, flags, place) == MAP_FAILED)
        fail("mremap");
    touch(place, size / 4, PAGE);
    ready(line);
    await(line);
}

static size_t moved_forks(void) /* shared pages, but at other addresses */
{
    size_t size = mib(192), base = held();
    Child children[3];
    inherited = take(size);
    for (int i = 0; i < 3; i++) {
        children[i] = start(moves_what_it_inherited, size);
        hear(children[i]);
    }
    hold();
    for (int i = 0; i < 3; i++)
        end(children[i]);
    return base + backed(size) + 3 * (PROCESS + size / 512 + size / 4);
}

/* Mapped files */

static size_t file_private(void) /* a written page is a copy in place of the file's */
{
    size_t size = mib(256), base = held();
    int file = disk_file(size);
    char *memory = map(size, PROT_READ | PROT_WRITE, MAP_PRIVATE, file);
    look_at(memory, size);
    nap(0.4);
    touch(memory, size / 2, PAGE);
    hold();
    return base + MIB + backed(size);
}

static void reads(int line, size_t size)
{
    look_at(inherited, size);
    ready(line);
    await(line);
}

static size_t file_shared(void)
{
    size_t size = mib(256), base = held();
    Child children[3];
    inherited = map(size, PROT_READ, MAP_SHARED, disk_file(size));
    for (int i = 0; i < 3; i++)
        children[i] = start(reads, size);
    hold_with(children, 3);
    return base + MIB + 3 * PROCESS + size + 3 * (size / 512);
}

/* Processes that others may not look into */

static size_t nodump(void)
{
    size_t size = mib(192), own = mib(48), base = held();
    Child children[3];
    prctl(PR_SET_DUMPABLE, 0);
    inherited = take(size);
    for (int i = 0; i < 3; i++)
        children[i] = start(holds_when_told, own);
    Child copier = start(copies_when_told, size / 2);
    nap(0.4);
    for (int i = 0; i < 3; i++)
        turn(children[i]);
    turn(copier);
    hold();
    for (int i = 0; i < 3; i++)
        end(children[i]);
    end(copier);
    return base + backed(size) + 4 * (PROCESS + size / 512) + 3 * own + size / 2;
}

static size_t nodump_stage(void)
{
    size_t size = mib(192), own = mib(48), base = held();
    inherited = take(size);
    Child one = start(holds, own), other = start(holds, own);
    hear(one);
    hear(other);
    hold();
    end(one);
    end(other);
    return base + backed(size) + 2 * (PROCESS + size / 512 + backed(own));
}

static size_t nodump_exec(void) /* a program that its user may execute, not read */
{
    char path[4096], command[9000];
    close(named_file(folder, path, sizeof path, 0));
    snprintf(command, sizeof command, "cp '%s' '%s' && chmod 111 '%s'", program, path,
             path);
    if (system(command))
        fail(command);
    pid_t pid = fork();
    if (pid == 0)
        execute(path, "nodump_stage", 0);
    waitpid(pid, NULL, 0);
    unlink(path);
    return 0; /* the stage has written it */
}

/* A leader that has ended: its process lives on in other threads */

static void *works_alone(void *unused)
{
    size_t size = mib(256), base = held();
    nap(0.3);
    take(size);
    hold();
    write_truth(base + THREAD + backed(size));
    _exit(0);
    return unused;
}

static void *works_with_children(void *unused)
{
    size_t size = mib(128), own = mib(64), base = held();
    Child children[3];
    nap(0.3);
    inherited = take(size);
    for (int i = 0; i < 3; i++) {
        children[i] = start(holds, own);
        hear(children[i]);
    }
    hold();
    for (int i = 0; i < 3; i++)
        end(children[i]);
    write_truth(base + THREAD + backed(size) +
                3 * (PROCESS + size / 512 + backed(own)));
    _exit(0);
    return unused;
}

static size_t leader(void *(*body)(void *))
{
    pthread_t thread;
    if (pthread_create(&thread, NULL, body, NULL))
        fail("thread");
    pthread_exit(NULL);
}

static size_t leader_threads(void)
{
    return leader(works_alone);
}

static size_t leader_children(void)
{
    return leader(works_with_children);
}

/* Ways to hold memory */

static size_t page_tables(void) /* one page in each 2 MiB: as much in page tables */
{
    size_t count = mib(64) / PAGE, base = held();
    touch(reserve(count * 2 * MIB), count * 2 * MIB, 2 * MIB);
    hold();
    return base + 2 * count * PAGE;
}

static size_t thp_sparse(void) /* huge pages, as many as the kernel gave */
{
    size_t size = mib(256), base = held();
    int flags = MAP_PRIVATE | MAP_ANONYMOUS;
    char *memory = map(size, PROT_READ | PROT_WRITE, flags, -1);
    madvise(memory, size, MADV_HUGEPAGE);
    nap(0.3);
    touch(memory, size, 2 * MIB);
    hold();
    (void)base;
    return backed(held());
}

static size_t madv_free(void) /* resident until somebody else needs it */
{
    size_t size = mib(128), base = held();
    char *memory = take(size);
    madvise(memory, size, MADV_FREE);
    nap(0.2);
    take(size);
    hold();
    return base + 2 * backed(size);
}

static size_t dontneed(void)
{
    size_t size = mib(192), base = held();
    char *memory = take(size);
    nap(0.2);
    madvise(memory, size / 2, MADV_DONTNEED);
    nap(0.2);
    take(size);
    hold();
    return base + backed(size) + backed(size) / 2;
}

static size_t mremaps(void)
{
    size_t size = mib(256), now = size / 16, base = held();
    char *memory = take(now);
    for (; now < size; now *= 2) {
        nap(0.1);
        memory = mremap(memory, now, 2 * now, MREMAP_MAYMOVE);
        if (memory == MAP_FAILED)
            fail("mremap");
        touch(memory + now, now, PAGE);
    }
    hold();
    return base + backed(size);
}

static int shares_all(void *memory)
{
    touch(memory, mib(128), PAGE);
    nap(seconds);
    return 0;
}

static size_t clone_vm(void)
{
    size_t size = mib(256), base = held();
    char *memory = reserve(size), *stack = take(256 * KIB);
    int flags = CLONE_VM | SIGCHLD;
    pid_t pid = clone(shares_all, stack + 256 * KIB, flags, memory);
    touch(memory + size / 2, size / 2, PAGE);
    waitpid(pid, NULL, 0);
    return base + 256 * KIB + backed(size);
}

static pthread_barrier_t all_deep;

static void *goes_deep(void *unused)
{
    char room[512 * 1024];
    touch(room, sizeof room, PAGE);
    pthread_barrier_wait(&all_deep);
    nap(seconds);
    return unused;
}

static size_t stacks(void)
{
    size_t count = mib(200) / MIB, base = held();
    pthread_t threads[1024];
    if (count > 1024)
        count = 1024;
    pthread_barrier_init(&all_deep, NULL, (unsigned)count + 1);
    for (size_t i = 0; i < count; i++)
        if (pthread_create(&threads[i], NULL, goes_deep, NULL))
            fail("thread");
    pthread_barrier_wait(&all_deep);
    for (size_t i = 0; i < count; i++)
        pthread_join(threads[i], NULL);
    return base + count * (516 * KIB + THREAD);
}

/* Peaks of different moments */

static size_t moments(void)
{
    size_t size = mib(256), own = mib(32), base = held();
    Child first = start(comes_and_goes, size), second = start(comes_and_goes, size);
    take(own);
    turn(first);
    hold();
    turn(first);
    nap(0.2);
    turn(second);
    hold();
    stop(first);
    stop(second);
    return base + 2 * PROCESS + backed(own) + backed(size);
}

static size_t alternate(void)
{
    size_t size = mib(192), base = held();
    Child children[2];
    for (int i = 0; i < 2; i++)
        children[i] = start(comes_and_goes, size);
    for (int round = 0; round < 24; round++) {
        turn(children[round % 2]);
        nap(0.06);
        turn(children[round % 2]);
    }
    for (int i = 0; i < 2; i++)
        stop(children[i]);
    return base + 2 * PROCESS + backed(size);
}

static size_t roles(void) /* a large and a small one, that change places */
{
    size_t size = mib(192), rest = mib(32), base = held();
    Child children[2];
    char *memory = take(2 * rest);
    for (int i = 0; i < 2; i++)
        children[i] = start(comes_and_goes, size);
    for (int round = 0; round < 6; round++) {
        turn(children[round % 2]);
        nap(0.3);
        turn(children[round % 2]);
    }
    release(memory, 2 * rest);
    for (int i = 0; i < 2; i++)
        stop(children[i]);
    return base + 2 * PROCESS + backed(2 * rest) + backed(size);
}

static size_t hwm_below(void) /* the peak of the tree lies below a mark of one */
{
    size_t size = mib(256), base = held();
    char *memory = take(size);
    nap(0.2);
    release(memory, size);
    Child child = start(holds, size / 2);
    hear(child);
    nap(0.3);
    memory = take(size * 3 / 4);
    nap(0.15);
    release(memory, size * 3 / 4);
    nap(0.3);
    end(child);
    return base + PROCESS + backed(size / 2) + backed(size * 3 / 4);
}

static size_t late_pair(void) /* two forks, below an earlier peak of their parent */
{
    size_t size = mib(256), base = held();
    char *memory = take(size);
    hold();
    release(memory, size);
    Child one = start(holds, size / 4), other = start(holds, size / 4);
    hear(one);
    hear(other);
    nap(1);
    end(one);
    end(other);
    return base + backed(size);
}

static void retakes(int line, size_t size) /* the same memory, again and again */
{
    for (int round = 0; round < 60; round++) {
        char *memory = take(size);
        nap(0.02);
        release(memory, size);
    }
    take(size);
    ready(line);
    await(line);
}

static size_t retaken(void) /* faults that are no copies of what forks share */
{
    size_t size = mib(400), base = held();
    Child children[4];
    take(size);
    for (int i = 0; i < 4; i++)
        children[i] = start(retakes, size / 20);
    hold_with(children, 4);
    return base + backed(size) + 4 * (PROCESS + size / 512 + backed(size / 20));
}

static void writes_shared_memory(int line, size_t size)
{
    touch(map_shared(shared_memory(size), size), size, PAGE);
    retakes(line, size / 4);
}

static size_t shm_each(void) /* what only one process maps need not be anonymous */
{
    size_t size = mib(96), base = held();
    Child children[3];
    take(size);
    for (int i = 0; i < 3; i++)
        children[i] = start(writes_shared_memory, size);
    hold_with(children, 3);
    return base + backed(size) + 3 * (PROCESS + size + size / 512 + backed(size / 4));
}

static size_t spiker(void) /* a program of its own that is large for a moment */
{
    release(take(argument()), argument());
    nap(0.3);
    return 0;
}

static size_t spike_beside(void) /* between two looks, and then nothing is left of it */
{
    size_t size = mib(128), base = held();
    const char *file = truth_file;
    take(size / 4);
    truth_file = NULL;
    for (int round = 0; round < 3; round++) {
        pid_t pid = vfork();
        if (pid == 0)
            execute(program, "spiker", size);
        waitpid(pid, NULL, 0);
    }
    truth_file = file;
    return base + 2 * PROCESS + backed(size / 4) + backed(size);
}

static void was_larger(int line, size_t size)
{
    char *memory = take(2 * size);
    nap(0.1);
    release(memory + size, size);
    ready(line);
    await(line);
}

static size_t hwm_crowd(void) /* each was twice as large once, never all together */
{
    size_t size = mib(48), base = held();
    Child children[6];
    for (int i = 0; i < 6; i++) {
        children[i] = start(was_larger, size);
        hear(children[i]);
    }
    nap(0.2);
    for (int i = 0; i < 6; i++)
        end(children[i]);
    return base + 6 * PROCESS + 7 * backed(size);
}

static size_t sawtooth(void)
{
    size_t size = mib(256), base = held();
    take(size / 4);
    for (int tooth = 0; tooth < 12; tooth++) {
        char *memory = take(size);
        nap(0.02);
        release(memory, size);
        nap(0.08);
    }
    return base + backed(size) + backed(size / 4);
}

/* Many processes, and processes that come and go */

static size_t p200(void)
{
    size_t size = mib(20), base = held();
    Child children[200];
    for (int i = 0; i < 200; i++)
        children[i] = start(holds, size);
    hold_with(children, 200);
    return base + 200 * (PROCESS + backed(size));
}

static const double CHAIN[] = {64, 256, 32, 192, 16};

static size_t exec_chain(void)
{
    size_t stage = argument(), base = held();
    take(mib(CHAIN[stage]));
    nap(0.25);
    if (stage + 1 < sizeof CHAIN / sizeof *CHAIN)
        execute(program, "exec_chain", stage + 1);
    return base + backed(mib(256));
}

static size_t ignored(void) /* the kernel reaps: nobody can wait for them */
{
    size_t size = mib(64), base = held();
    signal(SIGCHLD, SIG_IGN);
    for (int round = 0; round < 2; round++) {
        Child children[4];
        for (int i = 0; i < 4; i++) {
            children[i] = start(holds, size);
            hear(children[i]);
        }
        hold();
        for (int i = 0; i < 4; i++)
            end(children[i]);
        nap(0.1);
    }
    return base + 4 * (PROCESS + backed(size));
}

static void leaves(int line, size_t size)
{
    ready(line);
    (void)size;
}

static size_t zombies(void)
{
    size_t size = mib(128), base = held();
    for (int i = 0; i < 200; i++)
        start(leaves, 0);
    take(size);
    hold();
    return base + backed(size) + 200 * 10 * KIB;
}

static size_t idle(void)
{
    return 0;
}

static size_t spawns(void) /* short programs beside a large one */
{
    size_t size = mib(256), base = held();
    take(size);
    for (int i = 0; i < 40; i++) {
        pid_t pid = vfork();
        if (pid == 0) {
            execl(program, program, "idle", NULL);
            _exit(1);
        }
        waitpid(pid, NULL, 0);
        nap(0.02);
    }
    return base + 2 * PROCESS + backed(size);
}

/* What cannot be seen, or only in a cgroup */

static size_t pipes(void) /* the kernel's buffers */
{
    size_t count = mib(32) / MIB, base = held();
    for (size_t i = 0; i < count; i++) {
        int ends[2];
        if (pipe(ends) || fcntl(ends[1], F_SETPIPE_SZ, MIB) < 0)
            fail("pipe");
        write_all(ends[1], MIB);
    }
    take(mib(32));
    hold();
    return base + MIB + backed(mib(32)) + count * MIB;
}

static void saws(int line, size_t size)
{
    char *memory = reserve(size);
    await(line);
    for (int tooth = 0; tooth < 40; tooth++) {
        touch(memory, size, PAGE);
        nap(0.01);
        madvise(memory, size, MADV_DONTNEED);
        nap(0.01 + 0.001 * (getpid() % 5));
    }
    ready(line);
    await(line);
}

static size_t saw3(void) /* how many of them meet is chance: three at most */
{
    size_t size = mib(48), base = held();
    Child children[3];
    for (int i = 0; i < 3; i++)
        children[i] = start(saws, size);
    for (int i = 0; i < 3; i++)
        tell(children[i]);
    for (int i = 0; i < 3; i++) {
        hear(children[i]);
        end(children[i]);
    }
    return base + 3 * (PROCESS + backed(size));
}

static const Kind KINDS[] = {
    {"cow_late", cow_late, "a fork writes what it inherited, late"},
    {"cow_parent", cow_parent, "the parent writes, the fork keeps the old"},
    {"cow_slow", cow_slow, "a fork writes it within 2 s"},
    {"cow_crowd", cow_crowd, "4 forks write a half, one after another"},
    {"cow_orphan", cow_orphan, "the parent ends, the fork keeps all"},
    {"shm_late", shm_late, "3 processes attach one segment, late"},
    {"shm_left", shm_left, "shared memory that nobody maps any more"},
    {"tmpfs_file", tmpfs_file, "a file on tmpfs, closed"},
    {"memfd", memfd, "a memfd, written and not mapped"},
    {"shm_sysv", shm_sysv, "a System V segment, left"},
    {"pool", pool, "3 pools of 4 forks with own growth"},
    {"churn50", churn50, "50 forks, always replaced"},
    {"churn100", churn100, "100 forks, always replaced"},
    {"mclapply", mclapply, "forks whose collector writes 1 page in 4"},
    {"joblib", joblib, "an array on tmpfs, mapped by 4 workers"},
    {"joblib_worker", joblib_worker, ""},
    {"moved_forks", moved_forks, "forks move what they inherited"},
    {"file_private", file_private, "a private file mapping, half written"},
    {"file_shared", file_shared, "3 processes map a file"},
    {"nodump", nodump, "forks that are not dumpable"},
    {"nodump_exec", nodump_exec, "a program that may not be read"},
    {"nodump_stage", nodump_stage, ""},
    {"leader_threads", leader_threads, "the leader ended, a thread works"},
    {"leader_children", leader_children, "the same, with children"},
    {"page_tables", page_tables, "one page in each 2 MiB"},
    {"thp_sparse", thp_sparse, "one byte in each huge page"},
    {"madv_free", madv_free, "MADV_FREE, then as much again"},
    {"dontneed", dontneed, "MADV_DONTNEED, then more"},
    {"mremaps", mremaps, "grows by mremap"},
    {"clone_vm", clone_vm, "two processes, one address space"},
    {"stacks", stacks, "200 threads with deep stacks"},
    {"moments", moments, "two peaks at different moments"},
    {"alternate", alternate, "spikes of two processes in turn"},
    {"roles", roles, "large and small change places"},
    {"hwm_below", hwm_below, "a spike below the process's mark"},
    {"late_pair", late_pair, "two forks, below an earlier peak"},
    {"retaken", retaken, "4 forks take memory anew, and copy nothing"},
    {"shm_each", shm_each, "3 such forks, each with shared memory of its own"},
    {"spike_beside", spike_beside, "a program beside it was large for a moment"},
    {"spiker", spiker, ""},
    {"hwm_crowd", hwm_crowd, "6 were larger once, one at a time"},
    {"sawtooth", sawtooth, "12 teeth of 20 ms"},
    {"p200", p200, "200 processes of 20 MiB"},
    {"exec_chain", exec_chain, "5 programs, each executes the next"},
    {"ignored", ignored, "children with SIGCHLD ignored"},
    {"zombies", zombies, "200 zombies"},
    {"spawns", spawns, "40 short programs beside a large one"},
    {"idle", idle, ""},
    {"pipes", pipes, "pipe buffers: only a cgroup shows them"},
    {"saw3", saw3, "3 processes with teeth of 10 ms: a bound"},
    {NULL, NULL, NULL},
};

int main(int count, char **words)
{
    return main_of(count, words, KINDS);
}
