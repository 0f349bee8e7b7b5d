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
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import weigh

MIB = 1 << 20
SEGMENT = 20 * MIB  # what torch's allocator takes at once for middle-sized tensors
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
# takes so many MiB for 0.2 s; what CUDA holds besides torch is known before
HOLDS = """
import json, os, sys, time, torch, weigh
from weigh.probe.driver import visible_gpus
probe = visible_gpus()
before = probe.read()[0].memory_used
torch.empty(1, device="cuda")
torch.cuda.synchronize()
reading = probe.read()[0]
listed = (reading.process_memory or {}).get(os.getpid())
context = reading.memory_used - before if listed is None else listed
context -= torch.cuda.memory_reserved()
with weigh.phase("hold"):
    held = torch.empty(int(sys.argv[1]) << 20, dtype=torch.uint8, device="cuda")
    torch.cuda.synchronize()
uuid = getattr(torch.cuda.get_device_properties(0), "uuid", None)
(gpu,) = weigh.gpus()
time.sleep(0.2)
print(json.dumps({
    "torch_allocated": torch.cuda.max_memory_allocated(),
    "torch_reserved": torch.cuda.max_memory_reserved(),
    "context": context,
    "outside_torch": None if listed is None else gpu.outside_torch,
    "uuid": uuid and str(uuid).removeprefix("GPU-"),
}))
"""
# grows to a size, in steps, and stays there for a moment
GROWS = """
import signal, sys, time, torch
signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
kept, size = [], int(sys.argv[1])
for _ in range(12):
    kept.append(torch.empty((size // 12) << 20, dtype=torch.uint8, device="cuda"))
    torch.cuda.synchronize()
    time.sleep(0.2)
time.sleep(1)
"""
KERNELS = """
import json, torch, weigh
a = torch.rand(8192, 8192, device="cuda") if hasattr(torch, "nn") else None
work = lambda: a @ a
print(json.dumps(None if a is None else [
    weigh.timeit(work, number=5, repeat=3, sync=sync).minimum for sync in (True, False)
]))
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
    folder: Path,
    code: str,
    *words: str,
    options: tuple[str, ...] = (),
    **environment: str,
) -> tuple[Any, Any]:
    """Run a program under ``weigh run``; return its record and the JSON it printed.

    Raise RuntimeError with the end of its output if it fails.
    """
    path = folder / "record.json"
    command = [sys.executable, "-m", "weigh", "run", "-q", "-o", str(path)]
    done = subprocess.run(
        [*command, *options, "--", sys.executable, "-c", code, *words],
        cwd=folder,
        env=os.environ | environment,
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


def require(what: str, found: object, expected: object) -> None:
    """Raise RuntimeError unless a figure is as expected."""
    if found != expected:
        message = f"{what} is {found}, not {expected}"
        raise RuntimeError(message)


def require_near(what: str, size: int, expected: int, slack: int = SEGMENT) -> None:
    """Raise RuntimeError unless a size is as expected, give or take *slack*."""
    is_near = abs(size - expected) <= slack
    require(what, size, size if is_near else expected)


def free_memory() -> int:
    """Return the MiB of the first GPU that nobody holds."""
    gpu = weigh.gpus()[0]
    return ((gpu.memory_total or 0) - (gpu.memory_used or 0)) // MIB


def held_for_a_moment(folder: Path) -> Iterator[tuple[str, str]]:
    """Compare a peak of a fifth of a second, and a phase's, with torch's counters."""
    size = min(4096, free_memory() // 2)
    first = weigh.gpus()[0].uuid
    record, truth = measured_run(folder, HOLDS, str(size), CUDA_VISIBLE_DEVICES=first)
    (gpu,) = record["usage"]["gpus"]
    context, reserved = truth["context"], truth["torch_reserved"]
    peak = gpu_peak(record)
    sizes = f"torch reserved {reserved / MIB:,.1f}, context {context / MIB:,.1f}"
    yield (
        f"{size:,} MiB held 0.2 s",
        f"{sizes}, peak {peak / MIB:,.1f} MiB by {gpu['source']}",
    )
    require_near("the peak", peak, reserved + context)
    require("what torch took", reserved >= size * MIB, expected=True)
    if truth["outside_torch"] is not None:  # else the driver hides processes here
        require_near("outside torch", truth["outside_torch"], context)
    (seen,) = record["phases"][0]["gpus"]
    for name in ("torch_allocated", "torch_reserved"):
        require(f"the phase's {name}", seen[name], truth[name])
    require_near("its rise", seen["peak"] - seen["before"], size * MIB)


def numbers_of_gpus(folder: Path) -> Iterator[tuple[str, str]]:
    """Compare the GPU of each number with the one that CUDA shows by it."""
    for gpu in weigh.gpus():
        if gpu.uuid.startswith("MIG-"):
            continue
        record, truth = measured_run(
            folder,
            HOLDS,
            "64",
            CUDA_VISIBLE_DEVICES=str(gpu.index),
            CUDA_DEVICE_ORDER="PCI_BUS_ID",
        )
        require("the UUID", record["usage"]["gpus"][0]["uuid"], gpu.uuid)
        require("CUDA's", truth["uuid"] or gpu.uuid[4:], gpu.uuid[4:])
        yield f"GPU {gpu.index}", "has the same UUID in CUDA"


def beside_nvidia_smi(folder: Path) -> Iterator[tuple[str, str]]:
    """Compare total and used memory with those of nvidia-smi."""
    tool, uuid = shutil.which("nvidia-smi"), weigh.gpus()[0].uuid
    if tool is None:
        return
    query = "--query-gpu=memory.total,memory.used"
    command = [tool, query, "--format=csv,noheader,nounits", "-i", uuid]
    printed = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    total, used = (int(word) * MIB for word in printed.split(","))
    waits = "import time; time.sleep(0.5); print(0)"
    record, _ = measured_run(folder, waits, CUDA_VISIBLE_DEVICES=uuid)
    (gpu,) = record["usage"]["gpus"]
    before = gpu["memory_before"]
    yield "nvidia-smi", f"{used / MIB:,.0f} MiB used, weigh {before / MIB:,.0f} MiB"
    require_near("the memory", gpu["memory_total"], total, MIB)
    require_near("what is used", before, used)


def timed_kernels(folder: Path) -> Iterator[tuple[str, str]]:
    """Time the work of kernels, and their launch."""
    _, times = measured_run(folder, KERNELS)
    if times is not None:
        yield "a product", f"{times[0]:.2e} s, its launch {times[1]:.2e} s"
        require("the work is the longer", times[0] > times[1], expected=True)


def guarded_tasks(folder: Path) -> Iterator[tuple[str, str]]:
    """Run two tasks that do not fit a GPU together."""
    (folder / "grows.py").write_text(GROWS)
    line = f"{sys.executable} grows.py {int(free_memory() * 0.6)}\n"
    (folder / "two.txt").write_text(2 * line)
    subprocess.run(
        [sys.executable, "-m", "weigh", "exec", "--per-gpu=2", "two.txt"],
        env=os.environ | {"CUDA_VISIBLE_DEVICES": weigh.gpus()[0].uuid},
        cwd=folder,
        capture_output=True,
        timeout=PART_SECONDS,
        check=True,
    )
    text = (folder / "two.txt.joblog.events.jsonl").read_text()
    events = [json.loads(line) for line in text.splitlines()]
    ends = [(one["seq"], one["state"]) for one in events if one["event"] == "ended"]
    yield "two tasks of 60 %", ", ".join(f"{seq} {state}" for seq, state in ends)
    completed = sorted(seq for seq, state in ends if state == "COMPLETED")
    require("what completed", completed, [1, 2])
    require("one was stopped", len(ends) > len(completed), expected=True)


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
    parser.add_argument("--rehearse", action="store_true", help="short")
    options = parser.parse_args()
    folder = options.folder.resolve()
    folder.mkdir(parents=True, exist_ok=True)
    os.environ["WEIGH_DIR"] = str(folder / "store")
    rows = [("GPU", gpu_name()), ("date", time.strftime("%Y-%m-%d"))]
    steps = REHEARSED_STEPS if options.rehearse else SHARING_STEPS
    seconds = REHEARSED_SECONDS if options.rehearse else BUSY_SECONDS
    parts: dict[str, Callable[[], Iterator[tuple[str, str]]]] = {
        "moment": lambda: held_for_a_moment(folder),
        "numbers": lambda: numbers_of_gpus(folder),
        "nvidia-smi": lambda: beside_nvidia_smi(folder),
        "kernels": lambda: timed_kernels(folder),
        "guard": lambda: guarded_tasks(folder),
        "training": lambda: training_memory(folder),
        "stages": lambda: four_stages(folder),
        "cost": lambda: sampling_cost(folder, seconds),
        "sharing": lambda: shared_by_tasks(folder, steps),
        "GPM": gpm_metrics,
    }
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
