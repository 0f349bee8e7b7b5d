"""Run real programs in a cgroup of the size that weigh advises after one run.

    python benchmarks/real_programs.py [--only r,java] [--runs 5] [-o FILE.md]

Needs root, which makes the cgroups; the programs and weigh run as nobody, who has to
reach this Python. Not in ci/isolated.sh: files are memory there, of which the kernel
counts what a program writes. It installs nothing: what is missing is left out and
named. Prints Markdown: the peak that the kernel counted (anonymous, shared and kernel
memory, without page cache), weigh's value with its bounds, what weigh advises, in how
many runs of that size something was killed, and whether the program dies at 0.7 of the
kernel's peak. If not, it takes what it gets (garbage collectors, buffers), and its peak
is not its need.
"""

import argparse
import json
import os
import shutil
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

from compiled import MemoryGroup, memory_group, remove
from measure import heading, machine, printed, row, say
from process import PLAIN_PATH, User, ordinary_user

MIB = 1 << 20
STEPS = ((1000, 10), (2000, 20), (5000, 50), (10240, 100))  # MiB: how weigh rounds
LEAST = 50 * MIB  # the smallest that it advises
MOST = 1.25  # of weigh's own rule: advised / held, before rounding
SHORT = 0.7  # of the peak: too little for what is not elastic
PATIENCE = 240  # seconds
LOOK = 0.001  # seconds between looks at the cgroup


class Program(NamedTuple):
    """A shell line, what it needs on PATH, and a line that prepares its input once."""

    name: str
    needs: str
    line: str
    before: str = ""


# what the lines share: $PYTHON is this interpreter, $INPUT a folder of made-up input
TEXT = "$INPUT/text"
PROGRAMS = [
    Program(
        "R mclapply",
        "Rscript",
        "Rscript -e 'library(parallel); x <- lapply(1:4e5, function(i) i + 0.5);"
        " y <- runif(5e6); r <- mclapply(1:6, function(i)"
        " { z <- y * i; gc(); sum(unlist(x)) + sum(z) }, mc.cores = 3)'",
    ),
    Program(
        "R lm",
        "Rscript",
        "Rscript -e 'd <- data.frame(y = runif(6e5), a = runif(6e5), b = runif(6e5));"
        " print(coef(lm(y ~ a * b, d)))'",
    ),
    Program(
        "joblib, memory-mapped array",
        "python:joblib python:numpy",
        '$PYTHON -c "import numpy as n, joblib as j\nx = n.ones(12_000_000)\n'
        "def f(a, i):\n  s = 0\n  for _ in range(6): s += float((a[:4_000_000] * i)"
        ".sum())\n  return s\n"
        'print(sum(j.Parallel(3)(j.delayed(f)(x, i) for i in range(9))))"',
    ),
    Program(
        "multiprocessing, fork",
        "python",
        '$PYTHON -c "import multiprocessing as m\nx = list(range(3_000_000))\n'
        "def f(i): return sum(a * i for a in list(x[::2]))\n"
        "with m.get_context('fork').Pool(4) as p: print(sum(p.map(f, range(12))))\"",
    ),
    Program(
        "multiprocessing, spawn",
        "python",
        "$PYTHON $INPUT/spawn.py",
        "printf '%s\\n' 'import multiprocessing as m' 'def f(i):'"
        " '    return sum([a * i for a in range(1_500_000)])'"
        " 'if __name__ == \"__main__\":'"
        " '    with m.get_context(\"spawn\").Pool(4) as p:'"
        " '        print(sum(p.map(f, range(12))))' > $INPUT/spawn.py",
    ),
    Program(
        "numpy",
        "python:numpy",
        '$PYTHON -c "import numpy as n; a = n.random.rand(2500, 2500);'
        ' print(n.linalg.svd(a[:900])[1].sum(), (a @ a).sum())"',
    ),
    Program(
        "sklearn forest, 2 jobs",
        "python:sklearn",
        '$PYTHON -c "import numpy as n; from sklearn.ensemble import'
        " RandomForestClassifier as F; r = n.random.default_rng(1);"
        " x = r.random((20000, 40)); y = (x[:, 0] + x[:, 1] > 1);"
        ' print(F(30, n_jobs=2, random_state=1).fit(x, y).score(x, y))"',
    ),
    Program(
        "Java -Xmx256m",
        "java",
        "java -Xmx256m -Xms256m -cp $INPUT Fill",
        "printf '%s\\n' 'public class Fill { public static void main(String[] a) {'"
        " 'java.util.List<byte[]> l = new java.util.ArrayList<>();'"
        " 'for (int i = 0; i < 640; i++) { byte[] b = new byte[1 << 18];'"
        " 'java.util.Arrays.fill(b, (byte) 1); l.add(b); }'"
        " 'System.out.println(l.size()); } }' > $INPUT/Fill.java; "
        "java -m jdk.compiler/com.sun.tools.javac.Main -d $INPUT $INPUT/Fill.java",
    ),
    Program(
        "make -j4, 8 files",
        "make gcc",
        "make -s -B -j4 -C $INPUT/make OUT=$PWD",
        "mkdir -p $INPUT/make && cd $INPUT/make && for i in $(seq 8); do"
        " { for f in $(seq 30); do"
        ' echo "int f${i}_$f(int *a){int s=0;for(int i=0;i<$f;i++)s+=a[i]*a[i%7];'
        'return s;}"; done; } > m$i.c; done;'
        " printf 'all: $(patsubst %%.c,$(OUT)/%%.o,$(wildcard *.c))\\n$(OUT)/%%.o: %%.c"
        "\\n\\tgcc -O3 -c -o $@ $<\\n' > Makefile",
    ),
    Program(
        "gcc, one large file",
        "gcc",
        "gcc -O2 -c -o large.o $INPUT/large.c",
        "for f in $(seq 400); do"
        ' echo "int g$f(int *a,int n){int s=$f;for(int i=0;i<n;i++)s^=a[i]+a[s&7];'
        'return s;}"; done > $INPUT/large.c',
    ),
    Program(
        "samtools sort -m 64M",
        "samtools python",
        "samtools sort -m 64M -@ 2 -o out.bam $INPUT/reads.sam",
    ),
    Program("samtools view", "samtools", "samtools view -@ 2 -b $INPUT/reads.sam > o"),
    Program(
        "blastn",
        "makeblastdb blastn",
        "blastn -num_threads 2 -query $INPUT/reads.fa -db $INPUT/genome -outfmt 6 > o",
        "makeblastdb -in $INPUT/genome.fa -dbtype nucl -out $INPUT/genome",
    ),
    Program("bwa index", "bwa", "cp $INPUT/genome.fa . && bwa index genome.fa"),
    Program(
        "bwa mem",
        "bwa",
        "bwa mem -t 2 $INPUT/genome.fa $INPUT/reads.fa > out.sam",
        "bwa index $INPUT/genome.fa",
    ),
    Program(
        "minimap2",
        "minimap2",
        "minimap2 -t 2 -a $INPUT/genome.fa $INPUT/reads.fa > out.sam",
    ),
    Program(
        "ffmpeg, x264",
        "ffmpeg",
        "ffmpeg -v error -f lavfi -i testsrc2=s=1280x720:d=3 -c:v libx264 -threads 2"
        " -y out.mp4",
    ),
    Program(
        "imagemagick",
        "convert-im6.q16",
        "convert-im6.q16 -size 2500x2500 plasma: -blur 0x6 out.png",
    ),
    Program(
        "sqlite3",
        "sqlite3",
        'sqlite3 :memory: "create table t as with recursive c(x) as (select 1 union all'
        " select x + 1 from c where x < 1500000) select x, hex(x) h from c;"
        ' create index i on t(h); select count(*) from t a join t b on a.h = b.h;"',
    ),
    Program(
        "node",
        "node",
        'node -e "const m = new Map(); for (let i = 0; i < 900000; i++)'
        " m.set('key' + i, {i, s: 'v' + i}); let s = 0; for (const v of m.values())"
        ' s += v.i; console.log(s)"',
    ),
    Program(
        "octave",
        "octave-cli",
        "octave-cli --no-init-file --eval 'a = rand(1400); b = a * a;"
        " disp(sum(inv(b + eye(1400))(:)))'",
    ),
    Program(
        "mpirun -n 4",
        "mpirun mpicc",
        "mpirun --oversubscribe -n 4 $INPUT/ranks",
        "printf '%s\\n' '#include <mpi.h>' '#include <stdlib.h>' '#include <string.h>'"
        " 'int main(int c, char **v) { MPI_Init(&c, &v); int n = 6000000;'"
        " 'double *a = malloc(8L * n), *b = malloc(8L * n); memset(a, 0, 8L * n);'"
        " 'for (int i = 0; i < 8; i++)'"
        " ' MPI_Allreduce(a, b, n, MPI_DOUBLE, MPI_SUM, MPI_COMM_WORLD);'"
        " 'MPI_Finalize(); }' > $INPUT/r.c; mpicc -O2 -o $INPUT/ranks $INPUT/r.c",
    ),
    Program("sort -S 100M", "sort", f"sort -S 100M -T . {TEXT} > out"),
    Program("xz -T2", "xz", f"head -c 12000000 {TEXT} | xz -T2 -3 > out.xz"),
    Program("zstd -19", "zstd", f"head -c 6000000 {TEXT} | zstd -q -T2 -19 > out"),
    Program(
        "gzip pipeline",
        "gzip sort uniq",
        f"gzip -1 -c {TEXT} | gzip -dc | cut -c1-12 | sort -S 64M -T . | uniq -c"
        " | sort -S 32M -T . -rn > out",
    ),
    Program("pigz", "pigz", f"pigz -p 4 -c {TEXT} > out.gz"),
    Program(
        "git gc",
        "git",
        "cp -r $INPUT/repository . && git -C repository gc --quiet --aggressive",
        "mkdir -p $INPUT/repository && cd $INPUT/repository && git init -q . &&"
        " for i in $(seq 60); do"
        f" head -c $((i * 40000)) {TEXT} | tail -c 700000 > f$((i % 7));"
        " git add -A; git -c user.name=n -c user.email=n@n commit -qm $i; done",
    ),
    Program(
        "perl, a hash",
        "perl",
        f"perl -ne '$h{{$_}}++; END {{ print scalar(keys %h), \"\\n\" }}' {TEXT}",
    ),
    Program(
        "awk, an array",
        "gawk",
        f"gawk '{{ a[$0] = NR }} END {{ print length(a) }}' {TEXT}",
    ),
    Program(
        "ruby",
        "ruby",
        "ruby -e 'h = {}; 700_000.times { |i| h[\"k#{i}\"] = [i] }; puts h.size'",
    ),
    Program(
        "php",
        "php",
        "php -d memory_limit=-1 -r '$a = []; for ($i = 0; $i < 1500000; $i++)"
        ' $a["k$i"] = $i; echo count($a);\'',
    ),
    Program(
        "postgres",
        "/usr/lib/postgresql/15/bin/initdb",
        "B=/usr/lib/postgresql/15/bin; $B/initdb -D d > log && $B/pg_ctl -D d -w -o"
        ' "-k $PWD -c listen_addresses= -c shared_buffers=96MB" start >> log &&'
        " psql -h $PWD postgres -c 'set max_parallel_workers_per_gather = 2'"
        " -c 'create table t as select g, md5(g::text) m from"
        " generate_series(1, 500000) g' -c 'select count(distinct m) from t';"
        " $B/pg_ctl -D d -m fast stop",
    ),
    Program(
        "gnuplot",
        "gnuplot",
        "gnuplot -e 'set term png; set samples 200000; set out"
        ' "o.png"; plot sin(x), cos(x), tan(x)\'',
    ),
    Program("tar and zstd", "tar zstd", "tar c -C $INPUT make text | zstd -q -9 > o"),
]
REPEATED = 5


class Verdict(NamedTuple):
    """What was found out about one program; sizes in bytes."""

    kernel: int
    value: int
    low: int
    high: int
    file: int
    advised: int
    killed: int
    dies: bool

    @property
    def is_close(self) -> bool:
        """Return whether the request exceeds the need only by what it may."""
        need = max(self.kernel + self.file, self.value if self.file else 0)
        return self.advised <= max(MOST * need + step(self.advised), LEAST)


class Runner:
    """Runs the programs as an ordinary user, in cgroups that root makes."""

    def __init__(self, user: User, folder: str, runs: int) -> None:
        self._user, self._folder, self._runs = user, folder, runs
        self._input = user.make_folder(f"{folder}/input")
        self._number = 0

    def prepare(self, line: str) -> bool:
        """Run a line that makes input; return whether it worked."""
        _, code = self._run([], line, None)
        return code == 0

    def judge(self, program: Program) -> Verdict:
        """Measure a program, and run it in groups of two sizes."""
        usage, advised = self._weighed(program.line)
        kernel = max(self._peak(program.line) for _ in range(2))
        killed = sum(self._dies(program.line, advised) for _ in range(self._runs))
        dies = self._dies(program.line, int(SHORT * kernel))
        peak = usage["peak_memory"]
        sizes = (peak["value"], peak["low"], peak["high"], peak["file"] or 0)
        return Verdict(kernel, *sizes, advised, killed, dies)

    def _weighed(self, line: str) -> tuple[dict[str, Any], int]:
        """Return the usage of a run under weigh, and the memory advised, in bytes."""
        weigh = os.path.join(os.path.dirname(os.path.abspath(sys.executable)), "weigh")
        to, code = self._run(
            [weigh, "run", "-q", "-o", "record.json", "--"], line, None
        )
        if code:
            raise ValueError(f"exit code {code} under weigh: {_last_line(f'{to}/log')}")
        with open(f"{to}/record.json", encoding="utf-8") as file:
            usage = json.load(file)["usage"]
        said = self._user.run([weigh, "request", "--json", f"{to}/record.json"], to)
        return usage, json.loads(said.stdout)["memory"]

    def _peak(self, line: str) -> int:
        """Return the most that the kernel counted, page cache left out."""
        group = _group()
        most, over = 0, threading.Event()

        def watch() -> None:
            nonlocal most
            while not over.wait(LOOK):
                most = max(most, group.held())

        watcher = threading.Thread(target=watch)
        watcher.start()
        try:
            to, code = self._run([], line, group)
        finally:
            over.set()
            watcher.join()
            remove(group)
        if code:
            raise ValueError(f"exit code {code}: {_last_line(f'{to}/log')}")
        return most

    def _dies(self, line: str, size: int) -> bool:
        """Return whether it cannot run to its end in a group of that size."""
        group = _group()
        group.limit(size)
        try:
            _, code = self._run([], line, group)
            return code != 0 or group.killed() > 0
        finally:
            remove(group)

    def _run(
        self, wrapper: Sequence[str], line: str, group: MemoryGroup | None
    ) -> tuple[str, int]:
        """Run a line in a folder of its own; return that and the exit code."""
        self._number += 1
        to = self._user.make_folder(f"{self._folder}/{self._number}")
        argv = [*wrapper, "/bin/bash", "-c", line]
        environment = {
            **self._user.environment(),
            "PYTHON": sys.executable,
            "INPUT": self._input,
            "OMP_NUM_THREADS": "2",
            "TMPDIR": to,
        }
        identity: dict[str, Any] = {"user": self._user.uid, "group": self._user.gid}
        with open(f"{to}/log", "w", encoding="utf-8") as log:
            options: dict[str, Any] = {"cwd": to, "env": environment}
            options |= {"stdout": log, "stderr": log}
            if group is None:
                process = subprocess.Popen(argv, **options, **identity)
            else:
                with group.entered():
                    process = subprocess.Popen(argv, **options, **identity)
            try:
                code = process.wait(timeout=PATIENCE)
            except subprocess.TimeoutExpired:
                process.kill()
                code = process.wait()
        for left in os.listdir(to):
            if left not in {"log", "record.json"}:
                _delete(f"{to}/{left}")
        return to, code


def step(size: int) -> int:
    """Return the step to which weigh rounds a request of that size."""
    return next((s for most, s in STEPS if size <= most * MIB), 1024) * MIB


def missing(program: Program) -> str:
    """Return what a program needs and this machine lacks."""
    for word in program.needs.split():
        name, _, module = word.partition(":")
        if name != "python" and shutil.which(name, path=PLAIN_PATH) is None:
            return name
        command = [sys.executable, "-P", "-c", f"import {module or 'sys'}"]
        if (
            name == "python"
            and subprocess.run(command, check=False, capture_output=True).returncode
        ):
            return module
    return ""


def make_input(runner: Runner) -> None:
    """Write the text, the genome and the reads that several programs share."""
    code = (
        "import random, os; r = random.Random(1); d = os.environ['INPUT']\n"
        "with open(d + '/text', 'w') as f:\n"
        " for i in range(700_000):\n"
        "  f.write(f'{r.getrandbits(64):x} the {i} of {r.getrandbits(20)}\\n')\n"
        "g = ''.join(r.choices('ACGT', k=4_000_000))\n"
        "with open(d + '/genome.fa', 'w') as f:\n"
        " f.write('>g\\n')\n"
        " for i in range(0, len(g), 60): f.write(g[i:i + 60] + '\\n')\n"
        "with open(d + '/reads.fa', 'w') as f, open(d + '/reads.sam', 'w') as s:\n"
        " s.write(f'@SQ\\tSN:g\\tLN:{len(g)}\\n')\n"
        " for i in range(200_000):\n"
        "  at = r.randrange(len(g) - 150); read = g[at:at + 150]\n"
        "  if i < 20_000: f.write(f'>{i}\\n{read}\\n')\n"
        "  s.write(f'r{i}\\t0\\tg\\t{at + 1}\\t60\\t150M\\t*\\t0\\t0\\t')\n"
        "  s.write(f'{read}\\t*\\n')\n"
    )
    if not runner.prepare(f'$PYTHON -c "{code}"'):
        sys.exit("the input could not be made")


def table(runner: Runner, wanted: Sequence[str]) -> Iterator[str]:
    """Yield the lines of the table as they are known."""
    yield f"Measured on {machine()}, the programs as nobody."
    yield from heading(
        "Real programs in a cgroup of the advised size",
        ["", "kernel, MiB", "weigh", "bounds", "of it files", "advised", "killed",
         "not too much", "dies at 0.7"],
    )  # fmt: skip
    verdicts = []
    for program in PROGRAMS:
        if wanted and not any(word in program.name.lower() for word in wanted):
            continue
        lack = missing(program)
        if lack or (program.before and not runner.prepare(program.before)):
            say(f"{program.name} left out: {lack or 'its input could not be made'}")
            continue
        say(program.name)
        try:
            verdict = runner.judge(program)
        except (OSError, LookupError, TypeError, ValueError) as error:
            say(f"{program.name}: no answer: {error!r}")
            continue
        verdicts.append(verdict)
        yield row([program.name, *cells_of(verdict)])
    killed = sum(verdict.killed > 0 for verdict in verdicts)
    close = sum(verdict.is_close for verdict in verdicts)
    die = sum(verdict.dies for verdict in verdicts)
    yield row([f"**{len(verdicts)} programs**", *[""] * 5, killed, close, die])


def cells_of(verdict: Verdict) -> list[str]:
    """Return one row of the table, without the name."""
    mebibytes = [
        f"{size / MIB:.0f}"
        for size in (verdict.kernel, verdict.value, verdict.low, verdict.high)
    ]
    ratio = verdict.advised / max(1, verdict.kernel)
    return [
        *mebibytes[:2],
        "-".join(mebibytes[2:]),
        f"{verdict.file / MIB:.0f}",
        f"{verdict.advised / MIB:.0f} ({ratio:.2f})",
        str(verdict.killed),
        "yes" if verdict.is_close else "**no**",
        "yes" if verdict.dies else "no",
    ]


def main() -> int:
    """Run what is asked for and print the table as it comes."""
    parser = argparse.ArgumentParser(description="Run real programs as advised.")
    parser.add_argument("--only", default="", help="parts of names, with commas")
    parser.add_argument("--runs", type=int, default=REPEATED, help="at that size")
    parser.add_argument("-o", "--output", help="write the table there too")
    options = parser.parse_args()
    if os.getuid() != 0 or memory_group_is_refused():
        parser.error("no memory cgroup can be made: run it as root")
    with tempfile.TemporaryDirectory(dir="/var/tmp") as folder:
        user = ordinary_user(folder, [os.path.realpath(sys.executable)])
        if user.uid is None:
            parser.error(user.note or "no ordinary user")
        runner = Runner(user, folder, options.runs)
        make_input(runner)
        wanted = [word.lower() for word in options.only.split(",") if word]
        lines = printed(table(runner, wanted))
    if options.output:
        with open(options.output, "w", encoding="utf-8") as file:
            file.writelines(line + "\n" for line in lines)
    return 0


def memory_group_is_refused() -> bool:
    """Return whether this machine lets us make no memory cgroup."""
    group = memory_group()
    if group is not None:
        remove(group)
    return group is None


def _group() -> MemoryGroup:
    group = memory_group()
    if group is None:
        raise OSError("no memory cgroup can be made any more")
    return group


def _last_line(path: str) -> str:
    with open(path, encoding="utf-8", errors="replace") as file:
        return (["", *file.read().splitlines()])[-1][:200]


def _delete(path: str) -> None:
    if os.path.isdir(path) and not os.path.islink(path):
        shutil.rmtree(path, ignore_errors=True)
    else:
        os.unlink(path)


if __name__ == "__main__":
    start = time.monotonic()
    code = main()
    say(f"{time.monotonic() - start:.0f} s")
    sys.exit(code)
