"""Jobs of many ranks on a real Slurm, against what they are promised. Run it as root.

    ci/isolated.sh .venv/bin/python soak/ranks.py [--only WORD...]

An ordinary user submits the jobs. What the ranks really hold is read by root from
/proc, once all of them hold it: the peak of each from its own status; of a node its
anonymous memory, and each page of a file or of shared memory once.
"""

import argparse
import json
import os
import pwd
import re
import shlex
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import msgspec

CI = Path(__file__).parents[1] / "ci"
SOURCES = Path(__file__).parents[1] / "src"
PATHS = f"{SOURCES}:{Path(msgspec.__file__).parents[1]}"
USER = "researcher"
MIB = 1 << 20
CLOSE = 0.02  # of the true figure
SLACK = 1.5 * MIB  # of small figures: what a shell needs in addition
HOLD = """\
import mmap, os, sys, time
first, more, seconds, shared = (float(word) for word in sys.argv[1:5])
mark = sys.argv[5] if len(sys.argv) > 5 else "rank"
names = ("OMPI_COMM_WORLD_RANK", "PMI_RANK", "SLURM_PROCID")
rank = int(next((os.environ[name] for name in names if name in os.environ), 0))
if shared:
    path = "/dev/shm/ranks-" + os.environ["SLURMD_NODENAME"]
    with open(path, "a+b") as file:
        file.truncate(int(shared) << 20)
        common = mmap.mmap(file.fileno(), int(shared) << 20)
    for at in range(0, len(common), 4096):
        common[at] = 1
held = bytearray(int((first + more * rank) * (1 << 20)))
for at in range(0, len(held), 4096):
    held[at] = 1
with open("/proc/self/status") as file:
    peak = next(line.split()[1] for line in file if line.startswith("VmHWM"))
with open(f"ready/{mark}.{rank}.part", "w") as file:
    file.write(peak)
os.rename(file.name, f"ready/{mark}.{rank}")
time.sleep(seconds)
"""
EXPORTS = """\
export OMPI_MCA_oob_tcp_if_include=lo OMPI_MCA_btl_tcp_if_include=lo
export OMPI_MCA_rmaps_base_oversubscribe=1
"""
TWO_BY_TWO = ("--nodes=2", "--ntasks-per-node=2", "--mem=1500M")


During = Callable[[Path], None] | None
WEIGH = "$PYTHON -m weigh run --"


class Line(NamedTuple):
    """One line of the table: a promise, what was asked of it, what was found."""

    name: str
    asked: str
    found: str
    kept: bool


class Job(NamedTuple):
    """A job that has ended: its folder, exit code, seconds, and the true figures."""

    folder: Path
    code: int
    took: float
    ranks: dict[str, int]
    nodes: dict[str, int]
    agents: dict[str, tuple[int, float, float]]  # bytes, CPU seconds, seconds

    def read(self, name: str) -> str:
        """Return the text of one of its files; empty if there is none."""
        path = self.folder / name
        return path.read_text() if path.exists() else ""

    def record(self) -> dict[str, Any]:
        """Return the one record that is in its store."""
        return self.record_in(self.folder / "store")

    def record_in(self, store: Path) -> dict[str, Any]:
        """Return the one record that is in a store."""
        export = (
            "env",
            f"WEIGH_DIR={store}",
            PYTHON,
            "-m",
            "weigh",
            "records",
            "export",
        )
        found = user(self.folder, *export).stdout
        (line,) = found.splitlines()
        record: dict[str, Any] = json.loads(line)
        return record


def user(folder: Path, *argv: str) -> subprocess.CompletedProcess[str]:
    """Run a command as the user."""
    become = ("setpriv", f"--reuid={USER}", f"--regid={USER}", "--init-groups")
    kept = ("PATH", "SLURM_CONF", "TMPDIR")
    env = {name: os.environ[name] for name in kept if name in os.environ}
    env |= {"HOME": str(folder), "WEIGH_DIR": str(folder / "store")}
    env |= {"PYTHONPATH": PATHS, "PYTHON": PYTHON, "PYTHONDONTWRITEBYTECODE": "1"}
    return subprocess.run(
        [*become, *argv],
        cwd=folder,
        env=env,
        capture_output=True,
        text=True,
        check=False,
    )


def submit(script: str, *options: str, ranks: int = 0, during: During = None) -> Job:
    """Run a job to its end; read the true figures once so many *ranks* are ready."""
    folder = Path(tempfile.mkdtemp(prefix="ranks-"))
    (folder / "ready").mkdir()
    (folder / "hold.py").write_text(HOLD)
    (folder / "job.sh").write_text(f"#!/bin/bash\n{EXPORTS}{script}\n")
    whose = pwd.getpwnam(USER)
    for path in (folder, *folder.rglob("*")):
        os.chown(path, whose.pw_uid, whose.pw_gid)
    flags = ("--wait", "--output=out", "--error=err")
    done: list[int] = []

    def run() -> None:
        ended = user(folder, "sbatch", *flags, *options, "job.sh")
        if "Batch job submission failed" in ended.stderr:
            print(ended.stderr, file=sys.stderr)
        done.append(ended.returncode)

    began = time.monotonic()
    thread = threading.Thread(target=run)
    thread.start()
    nodes: dict[str, int] = {}
    agents: dict[str, tuple[int, float, float]] = {}
    while thread.is_alive():
        time.sleep(0.1)
        if ranks and not nodes and len(ready(folder)) >= ranks:
            nodes = true_nodes()
            if during is not None:
                during(folder)
        agents |= running_agents() if ranks else {}
    thread.join()
    took = time.monotonic() - began
    return Job(folder, done[0], took, ready(folder), nodes, agents)


def ready(folder: Path) -> dict[str, int]:
    """Return the peak of each rank that holds its memory, in bytes."""
    found = (p for p in (folder / "ready").iterdir() if p.suffix != ".part")
    return {path.name: int(path.read_text()) << 10 for path in found}


def processes() -> Iterator[tuple[str, str, bytes, bytes]]:
    """Yield the user's processes on the nodes: id, node, environment, command line.

    MPICH hands the variables of its first node to all: the first process of a step,
    which the scheduler started, names the node.
    """
    found = {process[0]: process[1:] for process in _processes()}
    for pid, (_, _, env, command) in found.items():
        above = pid
        while found[above][0] in found:
            above = found[above][0]
        yield pid, found[above][1], env, command


def _processes() -> Iterator[tuple[str, str, str, bytes, bytes]]:
    uid = pwd.getpwnam(USER).pw_uid
    for pid in filter(str.isdecimal, os.listdir("/proc")):
        try:
            if os.stat(f"/proc/{pid}").st_uid != uid:
                continue
            env = Path(f"/proc/{pid}/environ").read_bytes()
            command = Path(f"/proc/{pid}/cmdline").read_bytes()
            stat = Path(f"/proc/{pid}/stat").read_text().rpartition(") ")[2].split()
        except OSError:
            continue
        node = re.search(rb"(?:^|\0)SLURMD_NODENAME=([^\0]*)", env)
        if node is not None:
            yield pid, stat[1], node[1].decode(), env, command


def true_nodes() -> dict[str, int]:
    """Return what the job's own processes hold on each node."""
    anonymous: dict[str, int] = {}
    mapped: dict[str, dict[tuple[str, str, str], int]] = {}
    for pid, node, env, command in processes():
        if b"WEIGH_OWN_PROCESS=" in env or b"-m\0weigh" in command:
            continue
        try:
            text = Path(f"/proc/{pid}/smaps").read_text()
        except OSError:
            continue
        for block in re.split(r"^(?=[0-9a-f]+-[0-9a-f]+ )", text, flags=re.MULTILINE):
            if not block:
                continue
            _, _, offset, device, inode = block.split(maxsplit=5)[:5]
            size = {
                name: int(value) << 10
                for name, value in re.findall(r"^(\w+): +(\d+) kB", block, re.MULTILINE)
            }
            if inode == "0":
                anonymous[node] = anonymous.get(node, 0) + size["Pss"]
                continue
            anonymous[node] = anonymous.get(node, 0) + size["Anonymous"]
            pages = mapped.setdefault(node, {})
            key = device, inode, offset
            pages[key] = max(pages.get(key, 0), size["Rss"] - size["Anonymous"])
    return {
        node: held + sum(mapped.get(node, {}).values())
        for node, held in anonymous.items()
    }


def running_agents() -> dict[str, tuple[int, float, float]]:
    """Return the memory, CPU time and age of the agent on each node."""
    found = {}
    for pid, node, _, command in processes():
        if b"weigh.measure.node_agent" not in command or command.startswith(b"srun"):
            continue
        try:
            status = Path(f"/proc/{pid}/status").read_text()
            stat = Path(f"/proc/{pid}/stat").read_text().rpartition(") ")[2].split()
            up = float(Path("/proc/uptime").read_text().split()[0])
        except OSError:
            continue
        peak = re.search(r"VmHWM:\s+(\d+)", status)
        tick = os.sysconf("SC_CLK_TCK")
        cpu, age = (int(stat[11]) + int(stat[12])) / tick, up - int(stat[19]) / tick
        if peak is not None:
            found[node] = int(peak[1]) << 10, cpu, age
    return found


class Case(NamedTuple):
    """A way to start ranks: the options of sbatch and the script."""

    name: str
    script: str
    ranks: int = 4
    options: Sequence[str] = TWO_BY_TWO


ONE_NODE = ("--nodes=1", "--ntasks-per-node=8", "--mem=8G")
HET = ("--nodes=1", "--ntasks=1", "--mem=700M", ":", "--nodes=1", "--ntasks=3")
RANKS = "$PYTHON hold.py 100 50 3 0"
TWO_STEPS = """
srun --exact -N2 -n2 --mem=500M $PYTHON hold.py 100 50 3 0 one &
srun --exact -N2 -n2 --mem=500M $PYTHON hold.py 60 30 3 0 two &
wait"""
MULTI = "0 $PYTHON hold.py 100 50 3 0\n1-3 $PYTHON hold.py 100 50 3 0\n"
CASES = (
    Case("srun", f"{WEIGH} srun {RANKS}"),
    Case("srun in nested bash", f"{WEIGH} bash -c 'bash -c \"srun {RANKS}; true\"'"),
    Case("srun --mpi=pmi2 --exact", f"{WEIGH} srun --mpi=pmi2 --exact {RANKS}"),
    Case(
        "srun --multi-prog",
        f'echo "{MULTI}" >multi; {WEIGH} srun -n4 --multi-prog multi',
    ),
    Case("mpirun of MPICH", f"{WEIGH} mpirun.mpich -n 4 {RANKS}"),
    Case("mpirun of Open MPI", f"{WEIGH} mpirun.openmpi -n 4 {RANKS}"),
    Case(
        "het job, 1 + 3",
        f"{WEIGH} srun --het-group=0,1 {RANKS}",
        options=(*HET, "--mem=1500M"),
    ),
    Case("two steps at once", f"{WEIGH} bash -c '{TWO_STEPS}'"),
    Case("8 ranks on a node", f"{WEIGH} srun -n8 {RANKS}", 8, ONE_NODE),
    Case(
        "64 ranks on a node",
        f"{WEIGH} srun -n64 --overcommit $PYTHON hold.py 10 1 30 0",
        64,
        ("--nodes=1", "--ntasks=8", "--mem=8G"),
    ),
    Case("200 MiB of shared memory", f"{WEIGH} srun $PYTHON hold.py 30 10 3 200"),
    Case("a weigh around each rank", f"srun {WEIGH} {RANKS}"),
    Case(
        "a weigh around each, shared memory",
        f"srun {WEIGH} $PYTHON hold.py 30 10 3 200",
    ),
)


def table(only: Sequence[str]) -> Iterator[Line]:
    """Compare each rank and node with what it really holds."""
    for case in CASES:
        if only and not any(word in case.name for word in only):
            continue
        job = submit(case.script, *case.options, ranks=case.ranks)
        for path in Path("/dev/shm").glob("ranks-*"):
            path.unlink()
        try:
            record = job.record()
        except (ValueError, IndexError):
            yield Line(case.name, "one record", job.read("err")[-300:], kept=False)
            continue
        yield compared(case, job, record)
        if case.ranks >= 64:
            yield from cost(job)
            peak = record["usage"]["peak_memory"]
            low, value, high = (peak[n] / MIB for n in ("low", "value", "high"))
            yield Line(
                "bounds of 64 ranks",
                "low near",
                f"{low:.0f}, {value:.0f}, {high:.0f} MiB",
                low > 0.9 * value,
            )


def compared(case: Case, job: Job, record: dict[str, Any]) -> Line:
    """Return how far a record is from the truth."""
    seen = sorted(rank["peak_memory"] or 0 for rank in record["ranks"])
    true = sorted(job.ranks.values())
    nodes = {n["name"]: n["peak_memory"]["value"] for n in record["nodes"]}
    is_whole = len(seen) == len(true) == case.ranks and nodes.keys() == job.nodes.keys()
    if not is_whole:
        found = f"{len(seen)} ranks, nodes {sorted(nodes)}; {record['missing']}"
        if len(true) != case.ranks:  # the job itself failed
            found += " ".join(job.read("err").split())[-200:]
        asked = f"{case.ranks} ranks, nodes {sorted(job.nodes)}"
        return Line(case.name, asked, found, kept=False)
    ranks = [off(a, b) for a, b in zip(seen, true, strict=True)]
    places = [off(nodes[name], job.nodes[name]) for name in nodes]
    words = ", ".join(
        f"{name} {nodes[name] / MIB:.1f} of {job.nodes[name] / MIB:.1f} MiB"
        for name in sorted(nodes)
    )
    found = f"ranks {worst(ranks):+.1%}; nodes {worst(places):+.1%}: {words}"
    if record["missing"]:
        found += f"; {record['missing']}"
    kept = not record["missing"] and all(
        abs(a - b) <= max(CLOSE * b, SLACK)
        for a, b in (
            *zip(seen, true, strict=True),
            *((nodes[name], job.nodes[name]) for name in nodes),
        )
    )
    return Line(case.name, "2 %", found, kept)


def off(seen: float, true: float) -> float:
    """Return the error relative to the truth."""
    return seen / true - 1


def worst(errors: Sequence[float]) -> float:
    """Return the largest error, with its sign."""
    return max(errors, key=abs, default=0.0)


def cost(job: Job) -> Iterator[Line]:
    """Return what the agents took of their nodes."""
    for node, (memory, cpu, age) in sorted(job.agents.items()):
        share = f"{cpu:.2f} s in {age:.0f} s, {cpu / age:.2%}"
        yield Line(f"agent on {node}: CPU", "2 % of a core", share, cpu / age <= 0.02)
        size = f"{memory / MIB:.1f} MiB"
        yield Line(f"agent on {node}: memory", "15 MiB", size, memory <= 15 * MIB)


LAYOUTS = {
    "2 + 2": "--nodes=2 --ntasks-per-node=2",
    "4 on one node": "--nodes=1 --ntasks=4",
    "3 + 1": "--nodes=2 --ntasks=4 --distribution=plane=3",
    "2 + 1 + 1": "--nodes=3 --ntasks=4",
}


def requests() -> Iterator[Line]:
    """Run jobs again at the printed requests, and with 30 % less."""
    for door, script in (
        ("weigh run -- srun", f"{WEIGH} srun {RANKS}"),
        ("srun weigh run", f"srun {WEIGH} {RANKS}"),
    ):
        job = submit(script, *TWO_BY_TWO)
        done = user(job.folder, PYTHON, "-m", "weigh", "request", "last")
        said = done.stdout + done.stderr
        found = re.search(r"--nodes=2\n.*--ntasks-per-node=2\n.*--mem=(\d+)M", said)
        each = re.search(r"--ntasks=4 --mem-per-cpu=(\d+)M", said)
        if found is None or each is None:
            yield Line(f"{door}: request", "a layout", said[-300:], kept=False)
            continue
        mem, per_cpu = int(found[1]), int(each[1])
        layout = LAYOUTS["2 + 2"]
        runs = {
            f"{layout} --mem={mem}M": True,
            f"{layout} --mem={mem * 7 // 10}M": False,
        }
        for layout in LAYOUTS.values():
            runs[f"{layout} --mem-per-cpu={per_cpu}M"] = True
        runs[f"{layout} --mem-per-cpu={per_cpu * 7 // 10}M"] = False
        for options, lives in runs.items():
            again = submit(script, *options.split())
            ended = "lived" if again.code == 0 else f"died, exit code {again.code}"
            kept = (again.code == 0) == lives
            yield Line(
                f"{door} at {options}", "lives" if lives else "dies", ended, kept
            )


ENDS = (
    ("", "true"),
    ("", "exit 5"),
    ("", "[ $R = 1 ] && exit 5; sleep 1"),
    ("", "[ $R = 1 ] && kill -KILL $$; sleep 1"),
    ("", "[ $R = 1 ] && kill -SEGV $$; sleep 1"),
    ("", "[ $R = 1 ] && kill -TERM $$; sleep 1"),
    ("", "[ $R = 0 ] && kill -INT $$; sleep 1"),
    ("-K", "[ $R = 1 ] && { sleep 1; exit 3; }; sleep 20"),
    ("-K", "[ $R = 0 ] && { sleep 1; kill -KILL $$; }; sleep 20"),
    ("-W 1", "[ $R = 0 ] && exit 0; sleep 20"),
    ("", "[ $R = 0 ] && exec ./none; exit 4"),
    ("", "sleep 1; exit $((R + 200))"),
)


def exit_codes() -> Iterator[Line]:
    """Compare exit codes, and what -K takes, with plain srun's."""
    lines = []
    for number, (option, end) in enumerate(ENDS):
        body = f"bash -c {shlex.quote(f'R=$SLURM_PROCID; {end}')}"
        for name, command in (
            ("plain", f"srun {option} -n2 {body}"),
            ("around", f"{WEIGH} srun {option} -n2 {body}"),
            ("each", f"srun {option} -n2 {WEIGH} {body}"),
        ):
            lines.append(
                f"s=$EPOCHREALTIME; {command} 2>err.{number}.{name}; c=$?; "
                f"echo {number} {name} $c $s $EPOCHREALTIME >>codes"
            )
    job = submit("\n".join(lines), "--nodes=2", "--ntasks=2", "--mem=600M")
    found: dict[tuple[int, str], tuple[str, float]] = {}
    for row in job.read("codes").splitlines():
        case_number, name, code, start, end = row.split()
        found[int(case_number), name] = code, float(end) - float(start)
    for door in ("around", "each"):
        same = [
            found.get((n, door), ("-",))[0] == found.get((n, "plain"), ("?",))[0]
            for n in range(len(ENDS))
        ]
        bad = "; ".join(
            f"{ENDS[n]}: {found.get((n, door))} not {found.get((n, 'plain'))}"
            for n, is_same in enumerate(same)
            if not is_same
        )
        words = f"{sum(same)} of {len(ENDS)} {bad}".strip()
        yield Line(f"exit codes of plain srun, {door}", "all", words, all(same))
        late = max(found[n, door][1] - found[n, "plain"][1] for n in (7, 8))
        yield Line(f"-K later than plain srun, {door}", "-", f"{late:.2f} s", late < 2)


def short_steps() -> Iterator[Line]:
    """Time 8 short steps, plain and under weigh, in turns."""
    steps = "for i in 1 2 3 4 5 6 7 8; do srun -n2 sleep 0.2; done"
    turn = f"""
s=$EPOCHREALTIME; bash -c '{steps}'; echo plain $s $EPOCHREALTIME >>times
s=$EPOCHREALTIME; {WEIGH} bash -c '{steps}'; echo weigh $s $EPOCHREALTIME >>times"""
    job = submit(turn * 5, "--nodes=2", "--ntasks=2", "--mem=600M")
    took: dict[str, list[float]] = {"plain": [], "weigh": []}
    for row in job.read("times").splitlines():
        name, start, end = row.split()
        took[name].append(float(end) - float(start))
    plain, weigh = (statistics.median(took[name]) for name in ("plain", "weigh"))
    words = f"{plain:.2f} s plain, {weigh:.2f} s: {weigh / plain - 1:+.0%}"
    yield Line("8 short steps", "10 %", words, weigh <= 1.1 * plain)


def signals() -> Iterator[Line]:
    """End jobs and steps by scancel, and send other signals."""
    for name, command in (
        ("plain", f"srun {RANKS.replace(' 3 0', ' 30 0')}"),
        ("around", f"{WEIGH} srun {RANKS.replace(' 3 0', ' 30 0')}"),
        ("each", f"srun {WEIGH} {RANKS.replace(' 3 0', ' 30 0')}"),
    ):
        at = [0.0]

        def cancel(_: Path, at: list[float] = at) -> None:
            time.sleep(2.5)  # nodes report once a second
            began = time.monotonic()
            subprocess.run(["scancel", f"--user={USER}"], check=True)
            while subprocess.check_output(["squeue", "-h", "-t", "R,CG"]):
                time.sleep(0.05)
            at[0] = time.monotonic() - began

        job = submit(command, *TWO_BY_TWO, ranks=4, during=cancel)
        words = f"{at[0]:.2f} s until it was gone"
        if name != "plain":
            time.sleep(1)
            found = job.record()
            words += f"; {found['state']}, {len(found['ranks'])} ranks"
            is_whole = len(found["ranks"]) == 4
        else:
            is_whole = True
        yield Line(f"scancel, {name}", "as plain", words, is_whole)
    body = (
        "trap 'echo got >>got; exit 0' USR1; echo 1 >ready/rank.$SLURM_PROCID; "
        "while :; do sleep 0.1; done"
    )
    for name, command in (
        ("around", f"{WEIGH} srun bash -c {shlex.quote(body)}"),
        ("each", f"srun {WEIGH} bash -c {shlex.quote(body)}"),
    ):

        def send(_: Path) -> None:
            time.sleep(1)
            subprocess.run(["scancel", "-s", "USR1", f"--user={USER}"], check=True)

        job = submit(command, *TWO_BY_TWO, ranks=4, during=send)
        found = job.record()
        words = f"{job.read('got').count('got')} of 4 ranks got it; {found['state']}"
        kept = job.read("got").count("got") == 4 and len(found["ranks"]) == 4
        yield Line(f"scancel -s USR1, {name}", "every rank once", words, kept)


def failures() -> Iterator[Line]:
    """Lose a rank, the first rank, the agents, a node."""
    job = submit(
        f"{WEIGH} srun bash -c '[ $SLURM_PROCID = 2 ] && {{ sleep 2; kill -9 $$; }}; "
        f"exec {RANKS}'",
        *TWO_BY_TWO,
    )
    found = job.record()
    words = f"{found['state']}, {len(found['ranks'])} ranks, {found['missing']}"
    yield Line("a rank killed", "4 ranks", words, len(found["ranks"]) == 4)
    job = submit(
        f"srun {WEIGH} bash -c '[ $SLURM_PROCID = 0 ] && {{ sleep 1; exit 0; }}; "
        f"sleep 2; exec {RANKS}'",
        *TWO_BY_TWO,
        ranks=3,
    )
    record = job.record()
    first = min(rank["peak_memory"] for rank in record["ranks"])  # a shell
    job = job._replace(ranks={**job.ranks, "rank.0": first})
    yield compared(Case("rank 0 leaves first", ""), job, record)
    fake = (
        "mkdir bin; printf '%s\\n' '#!/bin/sh' "
        "'case \"$*\" in *node_agent*) echo no agents >&2; exit 2;; esac' "
        "'exec /usr/bin/srun \"$@\"' >bin/srun; chmod +x bin/srun; "
    )
    job = submit(f"{fake} PATH=$PWD/bin:$PATH {WEIGH} srun {RANKS}", *TWO_BY_TWO)
    said = job.read("err")
    words = f"exit code {job.code}, {said.count('no agents')} warning"
    is_low = "at least" in said
    kept = job.code == 0 and said.count("no agents") == 1 and is_low
    yield Line("agents cannot start", "one warning", words, kept)
    yield lost_node()


def lost_node() -> Line:
    """Kill all of a node that is the second of a job."""

    def lose(_: Path) -> None:
        time.sleep(4)  # for a part of the agent's
        daemon = ["pkill", "-KILL", "-f", "slurmd -N cn2"]  # in namespaces of our own
        subprocess.run(daemon, check=True)
        for pid, node, *_others in processes():
            if node == "cn2":
                os.kill(int(pid), 9)
        for pid in filter(str.isdecimal, os.listdir("/proc")):
            try:
                name = Path(f"/proc/{pid}/cmdline").read_bytes()
                env = Path(f"/proc/{pid}/environ").read_bytes()
            except OSError:
                continue
            if b"slurmstepd" in name and b"cn2" in env + name:
                os.kill(int(pid), 9)
        down = ["scontrol", "update", "nodename=cn2", "state=down", "reason=test"]
        subprocess.run(down, check=True)

    ranks = RANKS.replace(" 3 0", " 12 0")
    job = submit(
        f"{WEIGH} srun --no-kill {ranks}",
        *TWO_BY_TWO,
        "--no-kill",
        "--nodelist=cn1,cn2",
        ranks=4,
        during=lose,
    )
    found = job.record()
    nodes = {n["name"]: n["peak_memory"]["value"] for n in found["nodes"]}
    words = f"{found['missing']}; " + ", ".join(
        f"{name} {nodes[name] / MIB:.0f} of {job.nodes[name] / MIB:.0f} MiB"
        for name in sorted(nodes)
    )
    is_kept = len(nodes) == 2 and "last heard" in str(found["missing"])
    return Line("a node killed", "kept, marked", words, is_kept)


def machines() -> Iterator[Line]:
    """Hide the processes of others; keep records on each node's own disk."""
    hide = ["mount", "-o", "remount,hidepid=2", "/proc"]
    if subprocess.run(hide, check=False).returncode == 0:
        for case in (CASES[0], Case("a weigh around each", f"srun {WEIGH} {RANKS}")):
            job = submit(case.script, *case.options, ranks=case.ranks)
            name = f"{case.name}, /proc with hidepid=2"
            yield compared(case._replace(name=name), job, job.record())
        shown = ["mount", "-o", "remount,hidepid=0", "/proc"]
        subprocess.run(shown, check=True)
    own = "export WEIGH_DIR=$PWD/disk-$SLURMD_NODENAME"
    job = submit(f"srun bash -c '{own}; exec {WEIGH} {RANKS}'", *TWO_BY_TWO, ranks=4)
    disks = sorted(job.folder.glob("disk-*"))
    ids, ranks = set(), []
    for disk in disks:
        found = job._replace(folder=job.folder).record_in(disk)
        ids.add(found["id"])
        ranks.append(f"{len(found['ranks'])} ranks, {found['missing']}")
    user(job.folder, "cp", "-r", str(disks[0]), "store")
    for path in disks[-1].glob("records/*/*"):
        # this rig's nodes are one machine, so their files have one name
        with (job.folder / "store" / path.relative_to(disks[-1])).open("ab") as file:
            file.write(path.read_bytes())
    name = f"WEIGH_DIR per node ({len(ids)} id; {'; '.join(ranks)}), copied together"
    yield compared(Case(name, ""), job, job.record())


PARTS: dict[str, Callable[[], Iterator[Line]]] = {
    "requests": requests,
    "codes": exit_codes,
    "steps": short_steps,
    "signals": signals,
    "failures": failures,
    "machines": machines,
}


def main() -> int:
    """Print the table; return 1 if a promise was not kept."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--only", nargs="*", default=(), metavar="WORD")
    only = parser.parse_args().only
    if os.geteuid() != 0:
        print("not run: a real scheduler needs root")
        return 0
    up = subprocess.run(
        [CI / "slurm-up.sh"], stdout=subprocess.PIPE, text=True, check=True
    )
    exports = [line.removeprefix("export ") for line in up.stdout.splitlines()]
    os.environ.update(dict(line.split("=", 1) for line in exports))
    # as where it is installed: compiling takes memory of the agents
    subprocess.run([sys.executable, "-m", "compileall", "-q", SOURCES], check=True)
    kept = True
    print("| | asked | found | |\n|---|---|---|---|")
    parts = [
        table(only),
        *(part() for name, part in PARTS.items() if not only or name in only),
    ]
    for lines in parts:
        for line in lines:
            word = "" if line.kept else "missed"
            print(f"| {line.name} | {line.asked} | {line.found} | {word} |", flush=True)
            kept = kept and line.kept
    return 0 if kept else 1


def python() -> str:
    """Return a Python that the user can run."""
    for path in (
        f"/usr/bin/python{sys.version_info[0]}.{sys.version_info[1]}",
        sys.executable,
    ):
        try:
            if user(Path("/"), path, "-c", "import msgspec, weigh").returncode == 0:
                return path
        except OSError:
            continue
    raise SystemExit("the user can run no Python that has msgspec")


PYTHON = sys.executable
if __name__ == "__main__":
    if os.geteuid() == 0:
        subprocess.run(["useradd", "-m", USER], check=False, capture_output=True)
        PYTHON = python()
    sys.exit(main())
