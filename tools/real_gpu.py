"""Measure on a real NVIDIA GPU what stand-ins cannot show; see ``make gpu``.

    python tools/real_gpu.py FOLDER [--rehearse]

It needs a GPU, torch and weigh's two libraries, and no network. FOLDER gets `gpu.json`
and `gpu.md`, a table for docs/gpu.md. Each part that fails leaves its error there, and
the others go on: minutes on such a machine are rare. Without torch.nn (a stand-in) the
training only takes memory, so that a rehearsal finds slips of this file.
"""

import argparse
import ctypes
import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import weigh

MIB = 1 << 20
SOURCES = Path(__file__).parents[1]
PART_SECONDS = 120
SHARING_STEPS, BUSY_SECONDS = 40, 10
REHEARSED_STEPS, REHEARSED_SECONDS = 4, 1
NOBODY = 65534  # the ordinary user of every Linux

# a transformer encoder in training; prints what torch's allocator counted
TRAIN = """
import json, sys, time, torch, weigh
batch, steps = int(sys.argv[1]), int(sys.argv[2])
started = time.monotonic()
if hasattr(torch, "nn"):
    torch.manual_seed(1)
    layer = torch.nn.TransformerEncoderLayer(512, 8, 2048, batch_first=True)
    model = torch.nn.TransformerEncoder(layer, 6).cuda()
    optimizer = torch.optim.AdamW(model.parameters())
    def step():
        optimizer.zero_grad()
        model(torch.randn(batch, 128, 512, device="cuda")).square().mean().backward()
        optimizer.step()
        torch.cuda.synchronize()
else:
    kept = []
    def step():
        if not kept:
            kept.append(torch.empty(batch << 20, dtype=torch.uint8, device="cuda"))
        time.sleep(0.1)
for _ in weigh.batches(range(steps), size=batch):
    step()
print(json.dumps({
    "reserved": torch.cuda.max_memory_reserved(),
    "allocated": torch.cuda.max_memory_allocated(),
    "seconds": time.monotonic() - started,
}))
"""
# a model of 1 GiB, then batches of 256 MiB: each stage is known
STAGES = """
import json, time, torch, weigh
MIB = 1 << 20
torch.empty(1, device="cuda")
torch.cuda.synchronize()
model = torch.empty(1024 * MIB, dtype=torch.uint8, device="cuda")
torch.cuda.synchronize()
loaded = torch.cuda.max_memory_reserved()
for _ in weigh.batches(range(5), size=1):
    held = torch.empty(256 * MIB, dtype=torch.uint8, device="cuda")
    torch.cuda.synchronize()
    time.sleep(0.3)
    del held
print(json.dumps({"model": loaded, "peak": torch.cuda.max_memory_reserved()}))
"""
BUSY = """
import subprocess, sys, time
code = '''
import sys, time, torch
kept = torch.empty(64 << 20, dtype=torch.uint8, device="cuda")
end = time.monotonic() + float(sys.argv[1])
while time.monotonic() < end:
    kept.add_(1) if hasattr(kept, "add_") else time.sleep(0.01)
'''
command = [sys.executable, "-c", code, sys.argv[1]]
started = [subprocess.Popen(command) for _ in range(8)]
sys.exit(max(one.wait() for one in started))
"""


def measured_run(
    folder: Path, code: str, *words: str, options: tuple[str, ...] = ()
) -> tuple[Any, Any]:
    """Run a program under ``weigh run``; return its record and the JSON it printed.

    Raise RuntimeError with the end of its output if it fails.
    """
    path = folder / "record.json"
    command = [sys.executable, "-m", "weigh", "run", "-q", "-o", str(path)]
    done = subprocess.run(
        [*command, *options, "--", sys.executable, "-c", code, *words],
        cwd=folder,
        capture_output=True,
        text=True,
        timeout=PART_SECONDS,
        check=False,
    )
    record = json.loads(path.read_text())
    if done.returncode:
        message = f"exit code {done.returncode}: {done.stderr[-400:]}"
        raise RuntimeError(message)
    return record, json.loads(done.stdout)


def gpu_peak(record: dict[str, Any]) -> int:
    """Return the bytes that a run held at most on its first GPU."""
    return int(record["usage"]["gpus"][0]["peak_memory"])


def training_memory(folder: Path) -> Iterator[tuple[str, str]]:
    """Predict a fourth batch size and the largest from three, then run both."""
    small, _ = measured_run(folder, TRAIN, "8", "4")
    larger, _ = measured_run(folder, TRAIN, "16", "4")
    total = small["usage"]["gpus"][0]["memory_total"]
    total -= small["usage"]["gpus"][0]["memory_reserved"] or 0
    per_sample = max(1, (gpu_peak(larger) - gpu_peak(small)) // 8)
    # the largest of three takes about a fifth of the GPU: its fourfold is the edge
    largest = max(16, int(total / 5 / per_sample) // 16 * 16)
    for batch in (largest // 4, largest // 2, largest):
        options = ("--label", "training", "--param", f"batch={batch}")
        record, counters = measured_run(folder, TRAIN, str(batch), "4", options=options)
        used = f"{gpu_peak(record) / MIB:,.0f} MiB, torch reserved "
        used += f"{counters['reserved'] / MIB:,.0f} MiB"
        yield f"training, batch {batch}", used
    fitted = weigh.fit("training", by="batch")
    free = total - (small["usage"]["gpus"][0]["memory_before"] or 0)
    certain = int(fitted.largest(memory=free))
    for name, batch in (("fourth size", 2 * largest), ("largest that fits", certain)):
        expected, bound = fitted.predict(batch), fitted.upper(batch)
        predicted = f"predicted {expected / MIB:,.0f}, bound {bound / MIB:,.0f} MiB"
        try:
            record, _ = measured_run(folder, TRAIN, str(batch), "4")
            truth = f"true {gpu_peak(record) / MIB:,.0f} MiB"
            truth += f", error {expected / gpu_peak(record) - 1:+.1%}"
        except RuntimeError as error:
            truth = "out of memory" if "out of memory" in str(error) else str(error)
        yield f"{name}, batch {batch}", f"{predicted}; {truth}"


def shared_by_tasks(folder: Path, steps: int) -> Iterator[tuple[str, str]]:
    """Compare ``plan --probe``'s number of tasks per GPU with the clock."""
    (folder / "train.py").write_text(TRAIN)
    lines = [f"{sys.executable} train.py 16 {steps}\n"] * 4
    (folder / "four.txt").write_text("".join(lines))
    plan = [sys.executable, "-m", "weigh", "plan", "four.txt", "--probe", "--json"]
    done = subprocess.run(
        [*plan, "--gpu-memory", "4GiB", "--memory", "4GiB", "--time", "10m"],
        cwd=folder,
        capture_output=True,
        text=True,
        timeout=PART_SECONDS,
        check=False,
    )
    yield "plan --probe", " ".join(done.stderr.split())[-300:]
    alone = 0.0
    for count in (1, 2, 3, 4):
        started = time.monotonic()
        command = [sys.executable, "train.py", "16", str(steps)]
        copies = [
            subprocess.Popen(command, cwd=folder, stdout=subprocess.DEVNULL)
            for _ in range(count)
        ]
        codes = [copy.wait(PART_SECONDS) for copy in copies]
        seconds = time.monotonic() - started
        alone = alone or seconds
        speed = f"{count * alone / seconds:.2f} times the throughput of one"
        yield f"{count} copies", speed if not any(codes) else f"exit codes {codes}"


def sampling_cost(folder: Path, seconds: int) -> Iterator[tuple[str, str]]:
    """Measure weigh's own CPU time while 8 processes use the GPU."""
    path = folder / "busy.json"
    command = [sys.executable, "-m", "weigh", "run", "-q", "-o", str(path), "--"]
    subprocess.run(
        [*command, sys.executable, "-c", BUSY, str(seconds)],
        cwd=folder,
        timeout=PART_SECONDS,
        check=True,
    )
    record = json.loads(path.read_text())
    share = record["monitor"]["cpu_time"] / record["usage"]["wall_time"]
    listed = len(record["usage"]["gpus"][0]["processes"] or ())
    yield "8 busy processes", f"weigh took {share:.2%} of a core, {listed} seen"


def four_stages(folder: Path) -> Iterator[tuple[str, str]]:
    """Compare the account in stages with sizes that the program knows."""
    record, counters = measured_run(folder, STAGES)
    before = record["usage"]["gpus"][0]["memory_before"] or 0
    loop = record["batches"]["gpus"][0]
    figures = {
        "weigh: before the run": before,
        "before the loop": loop["before"],
        "peak of the loop": loop["peak"],
        "of the GPU": gpu_peak(record),
        "torch: model": counters["model"],
        "peak": counters["peak"],
    }
    texts = [f"{name} {size / MIB:,.0f}" for name, size in figures.items()]
    yield "model of 1,024 MiB, batches of 256", ", ".join(texts) + " MiB"


class GpmMetric(ctypes.Structure):
    """One metric of NVML's GPM interface (nvml.h, nvmlGpmMetric_t)."""

    _fields_ = (
        ("number", ctypes.c_uint),
        ("error", ctypes.c_uint),
        ("value", ctypes.c_double),
        ("names", ctypes.c_char_p * 3),
    )


class GpmQuestion(ctypes.Structure):
    """Two samples and the metrics to compute from them (nvmlGpmMetricsGet_t)."""

    _fields_ = (
        ("version", ctypes.c_uint),
        ("count", ctypes.c_uint),
        ("first", ctypes.c_void_p),
        ("second", ctypes.c_void_p),
        ("metrics", GpmMetric * 400),  # the library reads as many as count says
    )


GPM_METRICS = {2: "SM active", 5: "tensor active", 10: "DRAM bandwidth"}


def gpm_as_this_user() -> str:
    """Read NVML's GPM metrics once; return percentages, or what NVML answers."""
    library = ctypes.CDLL("libnvidia-ml.so.1")
    if not hasattr(library, "nvmlGpmSampleGet"):
        return "this driver has no GPM"
    library.nvmlInit_v2()
    device = ctypes.c_void_p()
    if error := library.nvmlDeviceGetHandleByIndex_v2(0, ctypes.byref(device)):
        return f"no GPU: NVML error {error}"
    samples = [ctypes.c_void_p(), ctypes.c_void_p()]
    spent = 0.0
    for sample in samples:
        library.nvmlGpmSampleAlloc(ctypes.byref(sample))
        started = time.perf_counter()
        error = library.nvmlGpmSampleGet(device, sample)
        spent += time.perf_counter() - started
        if error:
            return f"not readable: NVML error {error}"
        time.sleep(0.2)
    question = GpmQuestion(1, len(GPM_METRICS), samples[0], samples[1])
    for place, number in enumerate(GPM_METRICS):
        question.metrics[place].number = number
    if error := library.nvmlGpmMetricsGet(ctypes.byref(question)):
        return f"not computed: NVML error {error}"
    values = [
        f"{name} {question.metrics[place].value:.1f} %"
        for place, name in enumerate(GPM_METRICS.values())
    ]
    return f"{', '.join(values)}; a sample takes {spent / 2 * 1000:.1f} ms"


def gpm_metrics() -> Iterator[tuple[str, str]]:
    """Read GPM as this user and, of root, as an ordinary one.

    In a process without torch's threads, which a fork would not take along.
    """
    code = (
        "import os, sys; sys.path.insert(0, sys.argv[1]); import real_gpu\n"
        # opened first: the other user may not be able to read its folder
        "real_gpu.ctypes.CDLL('libnvidia-ml.so.1'); os.setuid(int(sys.argv[2]))\n"
        "print(real_gpu.gpm_as_this_user())"
    )
    for user in sorted({os.getuid(), os.getuid() or NOBODY}):
        command = [sys.executable, "-c", code, str(SOURCES / "tools"), str(user)]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        text = done.stdout.strip() or "no answer"
        yield f"GPM as {'an ordinary user' if user else 'root'}", text


def marked_tests(folder: Path) -> Iterator[tuple[str, str]]:
    """Run the tests with the mark gpu; keep their whole output."""
    command = [sys.executable, "-m", "pytest", "-q", "-rsP", "-m", "gpu"]
    done = subprocess.run(
        [*command, "-p", "no:cacheprovider", "tests/unit/measure/gpu/test_real_gpu.py"],
        cwd=SOURCES,
        capture_output=True,
        text=True,
        timeout=2 * PART_SECONDS,
        check=False,
    )
    (folder / "tests.txt").write_text(done.stdout + done.stderr)
    yield "marked tests", done.stdout.strip().splitlines()[-1]


def gpu_name() -> str:
    """Return the name of the first GPU that is mine, and its driver's memory."""
    gpus = weigh.gpus()
    return f"{gpus[0].name}, {(gpus[0].memory_total or 0) / MIB:,.0f} MiB"


def write_table(folder: Path, rows: list[tuple[str, str]]) -> None:
    """Write the rows so far as JSON and as a Markdown table."""
    (folder / "gpu.json").write_text(json.dumps(rows, indent=1) + "\n")
    lines = [f"| {name} | {text.replace('|', '/')} |" for name, text in rows]
    (folder / "gpu.md").write_text("\n".join(["| | |", "|---|---|", *lines]) + "\n")


def main() -> None:
    """Measure all parts, and print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", nargs="?", default="real-gpu", type=Path)
    parser.add_argument("--rehearse", action="store_true", help="short, no tests")
    options = parser.parse_args()
    folder = options.folder.resolve()
    folder.mkdir(parents=True, exist_ok=True)
    os.environ["WEIGH_DIR"] = str(folder / "store")
    rows = [("GPU", gpu_name()), ("date", time.strftime("%Y-%m-%d"))]
    steps = REHEARSED_STEPS if options.rehearse else SHARING_STEPS
    seconds = REHEARSED_SECONDS if options.rehearse else BUSY_SECONDS
    parts: dict[str, Callable[[], Iterator[tuple[str, str]]]] = {
        "tests": lambda: marked_tests(folder),
        "training": lambda: training_memory(folder),
        "stages": lambda: four_stages(folder),
        "cost": lambda: sampling_cost(folder, seconds),
        "sharing": lambda: shared_by_tasks(folder, steps),
        "GPM": gpm_metrics,
    }
    if options.rehearse:
        del parts["tests"]
    for name, part in parts.items():
        started = time.monotonic()
        try:
            for row in part():
                rows.append(row)
                write_table(folder, rows)
        except Exception as error:  # noqa: BLE001 - whatever it is, the next part runs
            rows.append((name, f"failed: {error!r:.300}"))
        rows.append((f"{name}, seconds", f"{time.monotonic() - started:.0f}"))
        write_table(folder, rows)
    print((folder / "gpu.md").read_text(), end="")


if __name__ == "__main__":
    main()
