"""Sixty training jobs on four GPUs, packed: ``python benchmarks/gpu_replay.py``.

Memory, minutes and classes are those that Yousefzadeh-Asl-Miandoab and others measured
on an A100 of 40 GB (CARMA, arXiv:2508.19073, 2025): their jobs of one GPU, light ones
(CIFAR-100) with 20 epochs. The sixty are drawn with a fixed seed, a third of a class.

The jobs play on a compiled stand-in for NVIDIA's library: each holds its memory, fails
if the card is full, and lasts its minutes, a tenth of a second for one. Everything else
is weigh: one run of each kind is measured, `plan` packs the sixty by what was measured,
`submit --on local` runs one element for each GPU. The makespan is compared with that of
one job per GPU. How much jobs on one card slow each other down was not published: once
they do not; once a light, medium, heavy job keeps .3, .6, .9 of a GPU busy and shares
it in time where that exceeds 1.
"""

import argparse
import random
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
STUB = ROOT / "tests" / "unit" / "gpu"
sys.path.insert(0, str(STUB))
from nvml_script import GIB, Script  # noqa: E402 - the tests' own

SEED, JOBS, CARDS, EPOCHS = 1, 60, 4, 20
CARD = 40 * 10**9
# name: GB, minutes
HEAVY = {
    "bert-base-32": (19.83, 14.92),
    "bert-large-8": (12.63, 44.93),
    "maskrcnn-8": (28.61, 112.07),
    "vgg16-128": (21.87, 44.60),
    "xception-128": (21.24, 47.57),
    "inception-128": (17.84, 49.80),
}
MEDIUM = {
    "efficientnet-32": (3.75, 41.96),
    "efficientnet-64": (6.70, 28.48),
    "resnet50-32": (3.94, 34.96),
    "resnet50-64": (7.11, 32.58),
    "resnet50-128": (13.24, 31.27),
    "mobilenet-64": (6.04, 25.70),
    "mobilenet-128": (11.34, 25.44),
    "vgg16-64": (11.77, 46.70),
    "xception-64": (11.20, 48.82),
    "inception-64": (9.34, 51.27),
    "dlrm-8": (1.47, 25.24),
}
LIGHT = {
    "efficientnet-cifar-64": (0.72, 1.09 * EPOCHS),
    "efficientnet-cifar-128": (8.67, 1.14 * EPOCHS),
    "resnet18-cifar-32": (0.79, 0.49 * EPOCHS),
    "resnet18-cifar-128": (0.86, 0.17 * EPOCHS),
    "resnet34-cifar-32": (1.01, 0.83 * EPOCHS),
    "resnet34-cifar-128": (2.08, 0.22 * EPOCHS),
    "mobilenetv3-cifar-64": (0.60, 0.50 * EPOCHS),
}
CLASSES = ((LIGHT, 0.3), (MEDIUM, 0.6), (HEAVY, 0.9))
SHARING = {"no slowing down": 0.0, ".3, .6, .9 of a card": 1.0}

JOB = """
import fcntl, json, os, sys, time
gigabytes, seconds, busy = map(float, sys.argv[2:5])
uuid_or_index = os.environ["CUDA_VISIBLE_DEVICES"].split(",")[0]
card = str(int(uuid_or_index[4:12], 16)) if "-" in uuid_or_index else uuid_or_index
script, me = os.environ["NVML_STUB_SCRIPT"], str(os.getpid())
memory = int(gigabytes * 1e9)
def change(mine):
    with open(script + ".held", "a+") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        file.seek(0)
        held = json.loads(file.read() or "{}")
        of_card = held.setdefault(card, {})
        of_card.pop(me, None)
        lines = dict(line.rstrip().split("=", 1) for line in open(script))
        used = sum(m for m, _ in of_card.values())
        if mine and used + mine > int(lines[card + ".total"]):
            sys.exit("torch.OutOfMemoryError: CUDA out of memory. Tried to allocate")
        if mine:
            of_card[me] = mine, busy
        file.truncate(0)
        file.write(json.dumps(held))
        lines[card + ".used"] = sum(m for m, _ in of_card.values())
        lines[card + ".procs"] = ",".join(f"{p}:{m}" for p, (m, _) in of_card.items())
        with open(script + ".new", "w") as new:
            new.write("".join(f"{key}={value}\\n" for key, value in lines.items()))
        os.replace(script + ".new", script)
        return
def load():
    with open(script + ".held") as file:
        fcntl.flock(file, fcntl.LOCK_SH)
        return sum(share for _, share in json.load(file)[card].values())
change(memory)
try:
    done, last = 0.0, time.monotonic()
    while done < seconds:
        time.sleep(0.05)
        now = time.monotonic()
        done, last = done + (now - last) / max(1.0, load()), now
finally:
    change(0)
"""


def drawn(sharing: float) -> list[str]:
    """Return the lines of the sixty jobs."""
    rng, lines = random.Random(SEED), []
    for place in range(JOBS):
        kinds, busy = CLASSES[place % len(CLASSES)]
        name = rng.choice(sorted(kinds))
        gigabytes, minutes = kinds[name]
        lines.append(line(name, gigabytes, minutes, busy * sharing))
    rng.shuffle(lines)
    return lines


def line(name: str, gigabytes: float, minutes: float, busy: float) -> str:
    """Return the command of a job; a minute lasts a tenth of a second."""
    return f"{sys.executable} {name}.py {name} {gigabytes} {minutes / 10:.2f} {busy}"


class Place:
    """A folder with the stand-in, the jobs and a store of its own."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        library = folder / "libnvidia-ml.so.1"
        flags = ["-std=gnu11", "-O1", "-shared", "-fPIC", f"-Wl,-soname,{library.name}"]
        source = str(STUB / "nvml_stub.c")
        subprocess.run(["cc", *flags, "-o", str(library), source], check=True)
        self.script = Script(folder / "script", library)
        self.script.gpus(CARDS, name="NVIDIA A100-SXM4-40GB", total=CARD)
        for kinds, _ in CLASSES:
            for name in kinds:
                (folder / f"{name}.py").write_text(JOB)

    def weigh(self, *argv: str, cards: str = "0,1,2,3") -> str:
        """Run weigh here; return its output."""
        started = self.start(*argv, cards=cards)
        said, _ = started.communicate()
        if started.returncode:
            raise SystemExit(f"weigh {' '.join(argv)}\n{said}")
        return said

    def start(self, *argv: str, cards: str) -> "subprocess.Popen[str]":
        """Start weigh here, on these cards."""
        env = self.script.environment() | {"CUDA_VISIBLE_DEVICES": cards}
        env["WEIGH_DIR"] = str(self.folder / ".weigh")
        return subprocess.Popen(
            [sys.executable, "-m", "weigh", *argv],
            cwd=self.folder,
            env=env,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )

    def measure(self, lines: Sequence[str]) -> None:
        """Run each kind of job once."""
        for one in sorted(set(lines)):
            argv = one.split()
            self.weigh("run", "-q", "--label", argv[2], "--", *argv, cards="0")

    def makespan(self, lines: Sequence[str], *options: str) -> tuple[float, int]:
        """Return the seconds that all jobs took, and how many ran out of memory."""
        name = "packed" if not options else "alone"
        (self.folder / "tasks.txt").write_text("\n".join(lines) + "\n")
        plan = ["--gpu", "A100-40GB", "--node", f",{CARDS}", "--name", name]
        self.weigh("plan", "tasks.txt", *plan, "--hours", "1", *options)
        queue = f"plan/{name}"
        (self.folder / queue / "log").mkdir(exist_ok=True)
        start = time.monotonic()
        pulling = [
            self.start(
                *("exec", "--pull", queue, "--joblog", f"{queue}/log/gpu{n}.joblog"),
                cards=str(n),
            )
            for n in range(CARDS)
        ]
        said = [one.communicate()[0] for one in pulling]
        took = time.monotonic() - start
        if any(one.returncode for one in pulling):
            raise SystemExit("\n".join(said))
        return took, sum(text.count("out of memory") for text in said)


def main() -> None:
    """Replay, and print a Markdown table."""
    argparse.ArgumentParser(description=__doc__).parse_args()
    print(f"{JOBS} jobs on {CARDS} GPUs of {CARD / GIB:.1f} GiB\n")
    print("| jobs on one GPU | one per GPU | packed | | out of memory |")
    print("|---|---|---|---|---|")
    for name, sharing in SHARING.items():
        with tempfile.TemporaryDirectory() as folder:
            place, lines = Place(Path(folder)), drawn(sharing)
            place.measure(lines)
            packed, out_of_memory = place.makespan(lines)
            alone, _ = place.makespan(lines, "--per-gpu", "1")
        print(
            f"| {name} | {alone:.0f} s | {packed:.0f} s | {packed / alone - 1:+.0%} "
            f"| {out_of_memory} |"
        )


if __name__ == "__main__":
    main()
