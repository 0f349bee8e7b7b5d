import signal
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from weigh.model.record import (
    MeasuringCost,
    RunMeasurement,
    RunOutcome,
    SampleSeries,
    Usage,
)
from weigh.why_run_ended import (
    counted_no_kill,
    error_at_end,
    failure_line,
    failure_lines,
    fixed_heap,
    judge_run_end,
    out_of_memory,
    ran_out_on_gpu,
    signal_name,
)


def measured(
    code: int | None = 0,
    number: int | None = None,
    *,
    oom_kills: int | None = 0,
    end_signal: int | None = None,
) -> RunMeasurement:
    return RunMeasurement(
        started=0.0,
        ended=1.0,
        exit_code=code,
        signal=number,
        usage=Usage(wall_time=1.0),
        series=SampleSeries(),
        monitor=MeasuringCost(),
        oom_kills=oom_kills,
        end_signal=end_signal,
    )


TERM, KILL = signal.SIGTERM, signal.SIGKILL
# exit code, signal, kills that the kernel counted, signal that weigh passed on: the
# state, and words of its reason
RUN_ENDS: dict[str, tuple[RunMeasurement, str, str]] = {
    "an exit code": (measured(7), "FAILED", "exit code 7"),
    "TERM": (measured(None, TERM), "CANCELLED", "ended by SIGTERM"),
    "INT": (measured(None, signal.SIGINT), "CANCELLED", "ended by SIGINT"),
    "HUP": (measured(None, signal.SIGHUP), "CANCELLED", "ended by SIGHUP"),
    "a shell's 128 and n": (measured(128 + TERM), "CANCELLED", "ended by SIGTERM"),
    # of no signal
    "128": (measured(128), "FAILED", "exit code 128"),
    "128 and 70": (measured(198), "FAILED", "exit code 198"),
    "255": (measured(255), "FAILED", "exit code 255"),
    "CPU time": (measured(None, signal.SIGXCPU), "TIMEOUT", "the limit on CPU time"),
    "a crash": (measured(None, signal.SIGSEGV), "FAILED", "SIGSEGV"),
    # a count decides
    "KILL, counted": (measured(None, KILL, oom_kills=2), "OUT_OF_MEMORY", "rose by 2"),
    "137, counted": (measured(137, oom_kills=2), "OUT_OF_MEMORY", "rose by 2"),
    "1, counted": (measured(1, oom_kills=2), "OUT_OF_MEMORY", "rose by 2"),
    "a worker, counted": (
        *(measured(0, oom_kills=1), "OUT_OF_MEMORY", "yet the exit code is 0"),
    ),
    "stopped, counted": (
        measured(None, TERM, oom_kills=1, end_signal=TERM),
        *("OUT_OF_MEMORY", "rose by 1"),
    ),
    # the process was moved to another control group meanwhile
    "a count that fell": (measured(1, oom_kills=-3), "FAILED", "exit code 1"),
    "KILL": (measured(None, KILL), "FAILED", "counted no out-of-memory kill"),
    "KILL, uncounted": (measured(None, KILL, oom_kills=None), "FAILED", "not known"),
    "stopped with an odd code": (
        *(measured(3, end_signal=TERM), "CANCELLED", "weigh was sent SIGTERM"),
    ),
}


@pytest.mark.parametrize("end", RUN_ENDS)
def test_a_run_ended_as_its_code_its_signal_and_the_kernels_count_show(
    end: str,
) -> None:
    run, expected, words = RUN_ENDS[end]
    state, outcome = judge_run_end(run)
    assert outcome is not None
    assert state == expected
    assert words in "; ".join((outcome.reason, *outcome.evidence))


@pytest.mark.parametrize(
    ("run", "is_uncounted"),
    [
        (measured(None, KILL), True),
        (measured(128 + KILL), True),
        (measured(None, KILL, oom_kills=1), False),
        (measured(None, KILL, oom_kills=None), False),
        (measured(None, TERM), False),
        (measured(1), False),
    ],
)
def test_a_kill_that_the_kernel_did_not_count_is_somebody_elses(
    run: RunMeasurement,
    is_uncounted: bool,  # noqa: FBT001 - a table
) -> None:
    assert counted_no_kill(run) is is_uncounted


@pytest.mark.parametrize("number", [TERM, signal.SIGSEGV])
def test_a_signal_that_is_no_kill_needs_no_evidence(number: int) -> None:
    _, outcome = judge_run_end(measured(None, number, oom_kills=None))
    assert outcome == RunOutcome(f"ended by {signal.Signals(number).name}")


@pytest.mark.parametrize("end_signal", [None, TERM])
def test_exit_code_0_needs_no_explanation(end_signal: int | None) -> None:
    assert judge_run_end(measured(0, end_signal=end_signal)) == ("COMPLETED", None)


ENDS = st.tuples(st.just(0) | st.integers(0, 255), st.none()) | st.tuples(
    st.none(), st.integers(1, 64)
)


@given(ENDS, st.none() | st.integers(-5, 5), st.none() | st.integers(1, 64))
def test_exit_code_0_alone_is_completed_and_all_else_has_a_reason(
    end: tuple[int | None, int | None], oom_kills: int | None, told: int | None
) -> None:
    state, outcome = judge_run_end(measured(*end, oom_kills=oom_kills, end_signal=told))
    assert (state == "COMPLETED") == (end == (0, None) and (oom_kills or 0) <= 0)
    assert state == "COMPLETED" or outcome is not None


@pytest.mark.parametrize("number", list(signal.Signals))
def test_signals_are_named_as_the_system_names_them(number: signal.Signals) -> None:
    assert signal_name(number) in {number.name, f"signal {int(number)}"}


# the words for memory that ran out, as programs print them

GPU_SAYS = {
    "torch": "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 20.00 GiB. "
    "GPU 0 has a total capacity of 15.77 GiB of which 14.11 GiB is free. If reserved "
    "but unallocated memory is large try setting PYTORCH_CUDA_ALLOC_CONF=... to avoid "
    "fragmentation.",
    "torch before 2.5": "torch.cuda.OutOfMemoryError: CUDA out of memory.",
    "torch, a rank": "[rank3]: torch.OutOfMemoryError: CUDA out of memory.",
    "torch on AMD": "RuntimeError: HIP out of memory. Tried to allocate 2.00 GiB",
    "torch on Apple": "RuntimeError: MPS backend out of memory (MPS allocated: 8 GB)",
    "CUDA": "RuntimeError: CUDA error: out of memory",
    "cuDNN": "RuntimeError: cuDNN error: CUDNN_STATUS_ALLOC_FAILED",
    "cuBLAS": "RuntimeError: CUDA error: CUBLAS_STATUS_ALLOC_FAILED when calling "
    "`cublasCreate(handle)`",
    "cuFFT": "RuntimeError: cuFFT error: CUFFT_ALLOC_FAILED",
    "JAX": "jaxlib.xla_extension.XlaRuntimeError: RESOURCE_EXHAUSTED: Out of memory "
    "while trying to allocate 68719476736 bytes.",
    "JAX on several": "jax.errors.JaxRuntimeError: RESOURCE_EXHAUSTED: Failed to "
    "allocate request for 16.00GiB (17179869184B) on device ordinal 0",
    "TensorFlow": "tensorflow.python.framework.errors_impl.ResourceExhaustedError: OOM "
    "when allocating tensor with shape[1024,1024] and type float on "
    "/job:localhost/replica:0/task:0/device:GPU:0 by allocator GPU_0_bfc [Op:Mul]",
    "CuPy": "cupy.cuda.memory.OutOfMemoryError: Out of memory allocating 80,000,000",
    "numba": "numba.cuda.cudadrv.driver.CudaAPIError: [2] Call to cuMemAlloc results in"
    " CUDA_ERROR_OUT_OF_MEMORY",
    "RAPIDS": "MemoryError: std::bad_alloc: out_of_memory: CUDA error at: "
    "/opt/rmm/include/rmm/cuda_memory_resource.hpp",
    "TensorRT": "[TRT] [E] Requested amount of GPU memory (8589934592 bytes) could not "
    "be allocated.",
    "vLLM": "ValueError: No available memory for the cache blocks. Try increasing "
    "`gpu_memory_utilization` when initializing the engine.",
    "vLLM at its start": "ValueError: Free memory on device (5.1/79.1 GiB) on startup "
    "is less than desired GPU memory utilization (0.9, 71.2 GiB).",
    "llama.cpp": "ggml_backend_cuda_buffer_type_alloc_buffer: allocating 9000 MiB on "
    "device 0: cudaMalloc failed: out of memory",
    "NCCL": "ncclUnhandledCudaError: Cuda failure 2 'out of memory'",
    "a kernel launcher": "error: GPU 0: out of memory",
}
HOST_SAYS = {
    "Python": 'Traceback (most recent call last):\n  File "a.py", line 1, in <module>'
    "\nMemoryError",
    "numpy": "numpy._core._exceptions._ArrayMemoryError: Unable to allocate 745. GiB "
    "for an array with shape (100000000000,) and data type float64",
    "Arrow": "pyarrow.lib.ArrowMemoryError: malloc of size 8000 failed",
    "torch on the CPU": "RuntimeError: [enforce fail at alloc_cpu.cpp:114] . "
    "DefaultCPUAllocator: can't allocate memory: you tried to allocate 800 bytes.",
    "TensorFlow on the CPU": "ResourceExhaustedError: OOM when allocating tensor with "
    "shape[9] on /job:localhost/replica:0/task:0/device:CPU:0 by allocator cpu",
    "C++": "terminate called after throwing an instance of 'std::bad_alloc'\n"
    "  what():  std::bad_alloc",
    "C": "bash: fork: Cannot allocate memory",
    "a shell": "bash: xrealloc: cannot allocate 16777344 bytes",
    "Python's fork": "OSError: [Errno 12] Cannot allocate memory",
    "Rust": "memory allocation of 68719476736 bytes failed",
    "Go": "fatal error: runtime: out of memory",
    "Fortran": "forrtl: severe (41): insufficient virtual memory",
    "Java": 'Exception in thread "main" java.lang.OutOfMemoryError: Java heap space',
    "JavaScript": "FATAL ERROR: Reached heap limit Allocation failed - JavaScript heap "
    "out of memory",
    "R": "Error: cannot allocate vector of size 7.5 Gb\nExecution halted",
    "Julia": "ERROR: LoadError: OutOfMemoryError()",
    "Ruby": "a.rb:1:in `*': failed to allocate memory (NoMemoryError)",
    "Perl": "Out of memory!",
    ".NET": "Unhandled exception. System.OutOfMemoryException: Array dimensions",
    "sort": "sort: memory exhausted",
    "Ray": "ray.exceptions.OutOfMemoryError: Task was killed due to the node running "
    "low on memory.",
    "a data loader": "RuntimeError: DataLoader worker (pid 7) is killed by signal: "
    "Killed.",
    "Slurm": "slurmstepd: error: Detected 1 oom_kill event in StepId=7.batch. Some of "
    "the step tasks have been OOM Killed.",
    "srun -l": "0: MemoryError",
    "the kernel": "Out of memory: Killed process 4242 (python) total-vm:9kB",
    "R's vectors": "Error: vector memory limit of 16.0 Gb reached, see mem.maxVSize()",
    "the JVM": "# There is insufficient memory for the Java Runtime Environment to",
    "MATLAB": "Error using zeros\nOut of memory.",
    "Octave": "error: out of memory or dimension too large for Octave's index type",
    "pandas": "ParserError: Error tokenizing data. C error: out of memory",
    "samtools": "samtools sort: couldn't allocate memory for bam_mem",
    "grep": "grep: memory exhausted",
    "awk": "awk: cmd. line:1: fatal: out of memory",
    "srun": "srun: error: node1: task 0: Out Of Memory",
    "DuckDB": "duckdb.OutOfMemoryException: Out of Memory Error: failed to allocate",
}
KILLED_SAYS = {
    "bash, of a script": "/var/spool/job7/slurm_script: line 5: 4711 Killed   python a",
    "sh": "Killed",
    "mpirun": "mpirun noticed that process rank 1 exited on signal 9 (Killed).",
    "Hydra": "=   KILLED BY SIGNAL: 9 (Killed)",
    "g++": "g++: fatal error: Killed signal terminated program cc1plus",
}
OTHER_BUG = """Traceback (most recent call last):
  File "train.py", line 9, in <module>
    raise KeyError("lr")
KeyError: 'lr'
"""
SAYS_NOTHING = {
    "a hint": "hint: if you see CUDA out of memory, reduce the batch size",
    "a retry": "WARNING CUDA out of memory, retrying with batch size 8",
    "a handler": "INFO caught MemoryError, halving the chunk",
    "source code": "    except torch.cuda.OutOfMemoryError:",
    "a raise": "    raise MemoryError(size)",
    "a list of words": "oom_words = ['CUDA out of memory', 'std::bad_alloc']",
    "prose": "fixed the MemoryError of last week",
    "a test's name": "test_cuda_out_of_memory PASSED",
    "an option": "usage: train [--on-cuda-oom]  what to do when CUDA out of memory",
    "a comment": "# java.lang.OutOfMemoryError: raise -Xmx",
    "TensorFlow's news": "Allocator (GPU_0_bfc) ran out of memory trying to allocate "
    "2.1GiB. The caller indicates that this is not a failure, but may mean that there "
    "could be performance gains if more memory were available.",
    "a quota": "grpc RESOURCE_EXHAUSTED: Quota exceeded for requests per minute",
    "enough": "peak memory 12 GB, out of 64 GB of memory",
    "another error later": "RuntimeError: CUDA out of memory.\n" + OTHER_BUG,
    "a disk": "OSError: [Errno 28] No space left on device",
    "nothing": "",
}


@pytest.mark.parametrize("words", GPU_SAYS.values(), ids=GPU_SAYS)
def test_gpu_memory_that_ran_out_is_known_by_each_librarys_words(words: str) -> None:
    found = out_of_memory(f"step 1\n{words}\n")
    assert found is not None
    assert found.on_gpu


@pytest.mark.parametrize("words", HOST_SAYS.values(), ids=HOST_SAYS)
def test_host_memory_that_ran_out_is_known_by_each_languages_words(words: str) -> None:
    found = out_of_memory(f"step 1\n{words}\n")
    assert found is not None
    assert not found.on_gpu


@pytest.mark.parametrize("words", KILLED_SAYS.values(), ids=KILLED_SAYS)
def test_a_killed_process_lacked_memory_unless_its_kills_were_counted(
    words: str,
) -> None:
    found = out_of_memory(f"step 1\n{words}\n")
    assert found is not None
    assert not found.on_gpu
    assert out_of_memory(words, by_kill=False) is None


@pytest.mark.parametrize("words", SAYS_NOTHING.values(), ids=SAYS_NOTHING)
def test_words_that_only_speak_of_memory_do_not_count(words: str) -> None:
    assert out_of_memory(f"step 1\n{words}\n") is None


@pytest.mark.parametrize(
    ("message", "command", "option"),
    [
        ("java.lang.OutOfMemoryError: Java heap", "java -Xmx100m -jar a", "-Xmx100m"),
        ("java.lang.OutOfMemoryError: Java heap", "java -Xmx$SIZE -jar a", None),
        (
            *("FATAL ERROR: JavaScript heap out of memory",),
            *("node --max-old-space-size=512 a.js", "--max-old-space-size=512"),
        ),
        ("MemoryError", "java -Xmx100m -jar a", None),
    ],
)
def test_a_heap_is_full_by_the_option_that_set_it(
    message: str, command: str, option: str | None
) -> None:
    assert fixed_heap(message, command) == option


def test_an_error_that_follows_from_memory_does_not_hide_it() -> None:
    chained = (
        f"During handling of the above exception, another occurred:\n\n{OTHER_BUG}"
    )
    found = out_of_memory(f"{GPU_SAYS['torch']}\n\n{chained}")
    assert found is not None


@pytest.mark.parametrize("words", GPU_SAYS.values(), ids=GPU_SAYS)
def test_a_records_evidence_states_that_it_was_the_gpu(words: str) -> None:
    found = out_of_memory(words)
    assert found is not None
    assert ran_out_on_gpu(RunOutcome("", (f"its output says {found.words!r}",)))


def test_without_evidence_it_is_not_known_whose_memory_it_was() -> None:
    assert ran_out_on_gpu(None) is None
    assert ran_out_on_gpu(RunOutcome("killed for memory")) is None
    assert ran_out_on_gpu(RunOutcome("", ("its output says 'MemoryError'",))) is False


@given(st.text())
def test_any_text_can_be_searched_for_words_of_memory(text: str) -> None:
    found = out_of_memory(text)
    assert found is None or found.words in text


def test_a_real_memory_error_is_known() -> None:
    limited = "import resource as r; r.setrlimit(r.RLIMIT_AS, (1 << 30, 1 << 30)); "
    done = subprocess.run(
        [sys.executable, "-c", limited + "bytearray(8 << 30)"],
        capture_output=True,
        text=True,
        check=False,
    )
    found = out_of_memory(done.stderr)
    assert found is not None
    assert found.words == "MemoryError"


# what programs printed (Python 3.11, R 4.2, OpenJDK 17, node 20, g++ 12, rustc 1.91,
# Perl 5.36, Open MPI 4.1, GNU make 4.3), and Go, Julia, gfortran by their documentation
FAILED = {
    "Python": """\
Traceback (most recent call last):
  File "e.py", line 2, in <module>
    raise ValueError("negative weight in row 98")
ValueError: negative weight in row 98
""",
    "Python, output after the traceback": """\
Traceback (most recent call last):
  File "<string>", line 1, in <module>
ZeroDivisionError: division by zero
97
""",
    "Python, a message of three lines": """\
Traceback (most recent call last):
  File "ml.py", line 2, in <module>
    raise ValueError("line one...")
ValueError: line one
line two of it
  indented three
""",
    "Python, a cause": """\
Traceback (most recent call last):
  File "c.py", line 2, in <module>
    try: int("x")
         ^^^^^^^^
ValueError: invalid literal for int() with base 10: 'x'

The above exception was the direct cause of the following exception:

Traceback (most recent call last):
  File "c.py", line 3, in <module>
    except ValueError as e: raise NoRow("bad row") from e
                            ^^^^^^^^^^^^^^^^^^^^^^^^^^^^^
__main__.NoRow: bad row
row 97 done
--------------------------------------------------------------------------
mpirun detected that one or more processes exited with non-zero status, thus causing
the job to be terminated. The first process to do so was:

  Process name: [[10716,1],0]
  Exit code:    1
--------------------------------------------------------------------------
""",
    "Python, of a rank": """\
[rank1]: Traceback (most recent call last):
[rank1]:   File "t.py", line 1, in <module>
epoch 1
[rank1]: torch.distributed.DistStore: rank 0 left
srun: error: n1: task 1: Exited with exit code 1
""",
    "R": """\
Warning message:
w
Error in g(1) :
  the matrix that was read from the file is computationally singular
Calls: f -> g
Execution halted
""",
    "Java": """\
s
Exception in thread "main" java.lang.IllegalStateException: bad grid
	at E.f(E.java:1)
	at E.main(E.java:1)
""",
    "Java, a cause": """\
Exception in thread "main" java.lang.RuntimeException: row 3
	at J.main(J.java:1)
Caused by: java.lang.NumberFormatException: For input: "x"
	at java.base/java.lang.Integer.parseInt(Integer.java:668)
	... 1 more
""",
    "node": """\
RangeError: grid of -1 cells
    at f (/x/n.js:1:44)
    at node:internal/main/run_main_module:28:49

Node.js v20.20.2
""",
    "C++": """\
terminate called after throwing an instance of 'std::runtime_error'
  what():  mesh has no cells
bash: line 1: 17533 Aborted                 ./tcpp
""",
    "Rust": """\
thread 'main' (17547) panicked at r.rs:1:97:
index out of bounds: the len is 0 but the index is 3
stack backtrace:
   0: __rustc::rust_begin_unwind
             at /rustc/59807616/library/std/src/panicking.rs:689:5
   1: r::main
note: Some details are omitted, run with `RUST_BACKTRACE=full` for a verbose backtrace.
""",
    "Perl": "no input at e.pl line 1.\nstart\n",
    "Go": "panic: no cells\n\ngoroutine 1 [running]:\nmain.main()\nexit status 2\n",
    "Julia": "ERROR: LoadError: no cells\nStacktrace:\n [1] f() at x.jl:1\n",
    "Fortran": "Fortran runtime error: End of file\n\nError termination. Backtrace:\n"
    "#0  0x7f3a in ???\n",
    "make": "make: *** No rule to make target 'x'.  Stop.\n"
    "make: Leaving directory '/'\n",
    "a shell": "step 5\njob.sh: line 3: 17869 Segmentation fault      ./solve\n",
    "mpirun": "rank 1: cannot read mesh.dat\n"
    + "-" * 74
    + "\nMPI_ABORT was invoked on rank 1\n"
    + "-" * 74
    + "\n",
    "a box of its own": f"step 1\n{'-' * 30}\nerror: no mesh\n{'-' * 30}\n",
    "a rule alone": f"error: no mesh\n{'-' * 30}\n",
    "a handled exception before": """\
Traceback (most recent call last):
  File "e.py", line 2, in <module>
ValueError: retrying without a cache
solve: cannot open mesh.dat
""",
    "a script that went on": "read 3 rows\ncat: mesh.dat: No such file or directory\n"
    "see the log\n",
    "a script that only warned": "warning: cannot lock\nstep 1\nstep 2\n",
    "a fit": "device: default\nerror of the fit: 0.25\ntunable: 3\nstep 2\n",
    "words only": "step 1\nstep 2\n\n",
    "nothing": " \n",
}
STATED = {
    "Python": "ValueError: negative weight in row 98",
    "Python, output after the traceback": "ZeroDivisionError: division by zero",
    "Python, a message of three lines": "ValueError: line one",
    "Python, a cause": "__main__.NoRow: bad row",
    "Python, of a rank": "torch.distributed.DistStore: rank 0 left",
    "R": "Error in g(1) : the matrix that was read from the file is computationally "
    "singular",
    "Java": "java.lang.IllegalStateException: bad grid",
    "Java, a cause": 'Caused by: java.lang.NumberFormatException: For input: "x"',
    "node": "RangeError: grid of -1 cells",
    "C++": "mesh has no cells",
    "Rust": "index out of bounds: the len is 0 but the index is 3",
    "Perl": "no input at e.pl line 1.",
    "Go": "panic: no cells",
    "Julia": "ERROR: LoadError: no cells",
    "Fortran": "Fortran runtime error: End of file",
    "make": "make: *** No rule to make target 'x'.  Stop.",
    "a shell": "job.sh: line 3: 17869 Segmentation fault      ./solve",
    "mpirun": "rank 1: cannot read mesh.dat",
    "a box of its own": "error: no mesh",
    "a rule alone": "error: no mesh",
    "a handled exception before": "solve: cannot open mesh.dat",
    "a script that went on": "cat: mesh.dat: No such file or directory",
    "a script that only warned": "step 2",
    "a fit": "step 2",
    "words only": "step 2",
    "nothing": "",
}


@pytest.mark.parametrize("program", FAILED)
def test_the_line_that_states_why_a_program_failed_is_found(program: str) -> None:
    assert failure_line(FAILED[program]) == STATED[program]


@pytest.mark.parametrize(
    ("program", "more"),
    [
        ("Python", "e.py, line 2"),
        ("Python, a cause", "c.py, line 3"),
        ("Python, of a rank", "t.py, line 1"),
        ("a script that went on", "see the log"),
        ("a shell", None),
    ],
)
def test_below_the_cause_stands_what_leads_to_it(
    program: str, more: str | None
) -> None:
    lines = failure_lines(FAILED[program])
    assert lines == (STATED[program], *([] if more is None else [more]))


def test_an_exception_in_a_library_is_placed_in_the_users_own_code(
    tmp_path: Path,
) -> None:
    (tmp_path / "job.py").write_text("import json\n\ndef f():\n    json.loads('')\nf()")
    ran = subprocess.run(
        [sys.executable, "job.py"],
        capture_output=True,
        text=True,
        check=False,
        cwd=tmp_path,
    )
    assert failure_lines(ran.stderr)[1:] == ("job.py, line 4, in f",)


TRACEBACK = FAILED["Python"]


@pytest.mark.parametrize("behind", range(4))
def test_an_error_counts_among_the_last_three_lines(behind: int) -> None:
    after = "".join(f"saved {number}\n" for number in range(behind))
    words = "cat: mesh.dat: No such file or directory"

    assert (error_at_end(TRACEBACK + after) == STATED["Python"]) is (behind < 3)
    assert (failure_line(f"{words}\n{after}") == words) is (behind < 3)


@given(st.text(max_size=400))
def test_any_output_has_one_line_that_was_printed_or_none(text: str) -> None:
    line = failure_line(text)
    assert bool(line) == bool(text.strip())
    assert len(line.splitlines()) <= 1
