"""Why a run ended: from its exit code, the kernel's counts and its last output."""

from functools import cache
from typing import TYPE_CHECKING, NamedTuple

import msgspec

from weigh.errors import SIGNAL_BASE
from weigh.lazy_modules import lazy_module
from weigh.model.mask import MASK
from weigh.model.record import RunMeasurement, RunOutcome, State

if TYPE_CHECKING:
    import re
else:  # each is imported when it is first used
    re = lazy_module("re")

_SIGNAL_NAMES = {
    1: "SIGHUP",
    2: "SIGINT",
    3: "SIGQUIT",
    4: "SIGILL",
    6: "SIGABRT",
    7: "SIGBUS",
    8: "SIGFPE",
    9: "SIGKILL",
    10: "SIGUSR1",
    11: "SIGSEGV",
    12: "SIGUSR2",
    13: "SIGPIPE",
    14: "SIGALRM",
    15: "SIGTERM",
    24: "SIGXCPU",
    25: "SIGXFSZ",
}
_KILL, _XCPU = 9, 24
_NO_KILL = "the kernel counted no out-of-memory kill here"
# SIGKILL is missing: the kernel, the scheduler and users all send it
_STATES_BY_SIGNAL: dict[int, State] = {
    1: "CANCELLED",
    2: "CANCELLED",
    3: "CANCELLED",
    15: "CANCELLED",
    _XCPU: "TIMEOUT",
}

# What programs and libraries print when they run out of memory: one regular expression
# per message. `^` is the start of a line, or the end of a log's prefix.
_GPU_WORDS = (
    # torch, on NVIDIA, AMD, Apple and Intel
    r"(?:CUDA|HIP|MPS backend|XPU|NPU) out of memory",
    r"torch(?:\.cuda)?\.(?:cuda\.)?OutOfMemoryError",
    r"(?:CUDA|HIP) (?:driver |runtime )?error:? (?:\d+:? )?\(?out of memory",
    r"(?:Cuda|HIP) failure (?:\d+ )?'out of memory'",
    # CUDA and ROCm, their libraries, numba
    r"CUDA_ERROR_OUT_OF_MEMORY",
    r"(?:cudaErrorMemoryAllocation|hipErrorOutOfMemory|hipErrorMemoryAllocation)",
    r"(?:CUBLAS|CUDNN|CUSOLVER|CUSPARSE|CURAND|NVJPEG|HIPBLAS)_STATUS_ALLOC_FAILED",
    r"CUDNN_STATUS_INTERNAL_ERROR_(?:DEVICE|HOST)_ALLOCATION_FAILED",
    r"CUFFT_ALLOC_FAILED",
    r"(?:cudaMalloc|hipMalloc)\w*(?:\(.{0,80}\))? failed:? out of memory",
    r"out_of_memory: CUDA error",  # RAPIDS
    r"cupy\.cuda\.memory\.OutOfMemoryError",
    # JAX and TensorFlow; both print the same for the CPU: see _ON_CPU
    r"RESOURCE_EXHAUSTED: .{0,80}?(?:[Oo]ut of memory|[Ff]ailed to allocate)",
    r"OOM when allocating tensor",
    r"Allocator \(GPU_\d+_bfc\) ran out of memory",
    # TensorRT, vLLM, ONNX Runtime, OpenCL
    r"Requested amount of GPU memory \(.{0,40}\) could not be allocated",
    r"No available memory for the cache blocks",
    r"Free memory on device .{0,80} is less than desired GPU memory utilization",
    r"[Ff]ailed to allocate memory for requested buffer of size",
    r"CL_(?:MEM_OBJECT_ALLOCATION_FAILURE|OUT_OF_DEVICE_MEMORY)",
    r"VK_ERROR_OUT_OF_DEVICE_MEMORY",
)
_HOST_WORDS = (
    # Python, numpy, Arrow, Ray
    r"^(?:[\w.]+\.)?_?(?:Array|Arrow)?MemoryError(?:\(\))?\s*(?::|$)",
    r"Unable to allocate [\d.]+ [KMGTPE]iB for an array",
    r"ray\.exceptions\.OutOfMemoryError",
    r"DefaultCPUAllocator: (?:can't allocate|not enough) memory",
    r"is killed by signal: Killed",  # torch, of a data loader's worker
    # C and C++, Fortran, Rust, Go
    r"Cannot allocate memory",
    r"what\(\):\s+std::bad_alloc",
    r"instance of 'std::bad_(?:alloc|array_new_length)'",
    r"^(?:[\w:. ]*: )?std::bad_alloc",
    r"x(?:m|c|re)alloc: cannot allocate \d+ bytes",
    r"insufficient (?:virtual memory|memory for the Java Runtime)",
    r"os::commit_memory\(.{0,80}\) failed",
    r"Error allocating \d+ bytes",
    r"memory allocation of \d+ bytes failed",
    r"(?:fatal error|runtime): (?:runtime: )?(?:out of|cannot allocate) memory",
    r"(?:virtual |vector )?memory exhausted(?:$| \()",
    r"vector memory limit of .{1,20} reached",
    r"[Cc]ouldn't allocate memory|[Uu]nable to allocate memory",
    r"(?:^|: )(?:Error: )?[Oo]ut of [Mm]emory(?:$|[!.]$|: |\. | Error:| allocating)",
    r"out of memory or dimension too large",
    r"array exceeds maximum array size",
    r"Allowed memory size of \d+ bytes exhausted",
    r"(?:malloc|calloc|realloc)(?:\(\))?:? (?:out of (?:virtual )?memory|failed:? out)",
    # Java, .NET, JavaScript, R, Julia, Ruby, Perl, MATLAB, OCaml, Haskell
    r"java\.lang\.OutOfMemoryError",
    r"\bOutOfMemoryException",
    r"JavaScript heap out of memory",
    r"[Cc]annot allocate vector of (?:size|length)",
    r"cannot allocate memory block of size",
    r"^(?:ERROR: )?(?:LoadError: )?OutOfMemoryError\(\)",
    r"failed to allocate memory \(NoMemoryError\)",
    r"NoMemoryError",
    r"^Out of memory(?:[!.]$|! | in perl| during)",
    r"exception Out_of_memory",
    r"[Hh]eap exhausted",
    # the kernel, Slurm, Kubernetes
    r"[Oo]ut of memory: Kill(?:ed)? process",
    r"invoked oom-killer",
    r"oom[-_]kill(?:ed)?\b(?! count)",
    r"OOM Killed|OOMKilled",
    r"[Ee]xceeded (?:job |step )?memory limit",
    r"tasks? [\d,-]+: Out Of Memory",
)
# what is printed of a process that got SIGKILL, by shells, launchers and compilers
_KILLED_WORDS = (
    r"^Killed(?:: 9)?\s*$",
    r"line \d+:\s+\d+ Killed\b",
    r"exited on signal 9 \(Killed\)|KILLED BY SIGNAL: 9\b",
    r"terminated with signal 9 \[Killed\]|Killed signal terminated program",
)
# the same messages about a GPU's memory, and about host memory
_NAMES_A_GPU = r"(?i:\b(?:cuda|hip|gpu|vram|device memory|cupy))"
_ON_CPU = r"device:CPU:\d+ by allocator cpu|allocator cpu\b|Allocator \(cpu|TFRT_CPU"
# words around a message that is only mentioned: before it, and after it
_ABOUT = (
    r"\b(?:if|when|whenever|unless|until|avoids?|avoiding|prevents?|preventing"
    r"|in case|(?:may|might|can|could|would|should)(?! not\b)|retry\w*|caught|catch\w*"
    r"|handl\w+|recover\w*|ignor\w+|skip\w*|except|raises?|instead of|without"
    r"|for example|e\.g\.|see|help|hint|tip|grep(?!:)|search\w*|patterns?)\b"
)
_GONE_ON = (
    r"\b(?:retry(?:ing)?|retried|recover(?:ed|ing)|skipp(?:ed|ing)|ignor(?:ed|ing)"
    r"|halving|reducing|falling back|fallback|handled|caught|continuing"
    r"|is not (?:a failure|an error)|not fatal)\b"
)
# a later, independent traceback: that error, not memory, ended the program
_TRACEBACK = "Traceback (most recent call last)"
_CHAINED = ("During handling of the above exception", "The above exception was the")
_OTHER_ERROR = (
    r"^(?:\w+\.)*(?:ArithmeticError|AssertionError|AttributeError|FileExistsError"
    r"|FileNotFoundError|FloatingPointError|ImportError|IndentationError|IndexError"
    r"|IsADirectoryError|KeyError|ModuleNotFoundError|NameError|NotADirectoryError"
    r"|NotImplementedError|OverflowError|PermissionError|RecursionError|SyntaxError"
    r"|TabError|TypeError|UnboundLocalError|UnicodeError|ValueError"
    r"|ZeroDivisionError)\b"
)
_LONGEST_LINE = 2000  # characters that are searched in one line


class OutOfMemory(msgspec.Struct, frozen=True):
    """A program's message that it ran out of memory; ``on_gpu``: of GPU memory."""

    words: str
    on_gpu: bool


def judge_run_end(measurement: RunMeasurement) -> tuple[State, RunOutcome | None]:
    """Return the state of a finished run, and the reason unless it simply completed.

    A shell reports a child killed by signal n as exit code 128 + n, so both count.
    """
    number = measurement.signal or signal_in_exit_code(measurement.exit_code)
    # first, because the kernel's count is evidence, and exit code 137 alone is not
    if measurement.oom_kills is not None and measurement.oom_kills > 0:
        return _outcome_of_memory_kill(measurement)
    if measurement.exit_code == 0:
        return "COMPLETED", None
    # weigh passed a signal on, so how the command ended then is only the consequence
    if measurement.end_signal is not None:
        name = signal_name(measurement.end_signal)
        return "CANCELLED", RunOutcome(f"weigh was sent {name} and passed it on")
    if number is None:
        return "FAILED", RunOutcome(f"exit code {measurement.exit_code}")
    state = _STATES_BY_SIGNAL.get(number, "FAILED")
    return state, RunOutcome(
        f"ended by {signal_name(number)}", _kill_hints(number, measurement.oom_kills)
    )


def _outcome_of_memory_kill(measurement: RunMeasurement) -> tuple[State, RunOutcome]:
    rise = f"the kernel's oom_kill count rose by {measurement.oom_kills}"
    if measurement.exit_code != 0:
        return "OUT_OF_MEMORY", RunOutcome("killed for memory", (rise,))
    # a driver that does not look at how its workers end: what they made is missing
    reason = "a process was killed for memory, yet the exit code is 0"
    return "OUT_OF_MEMORY", RunOutcome(reason, (rise,))


def out_of_memory(output_text: str, *, by_kill: bool = True) -> OutOfMemory | None:
    """Return the out-of-memory message in the last output of a failed program, if any.

    A line that only mentions running out of memory (a hint, a retry) does not count,
    nor does one before a traceback of another kind. GPU messages take precedence. With
    *by_kill* the words for a process that was killed count too: where nothing else is
    known of a SIGKILL, the kernel sent it for memory.
    """
    compiled = _compiled_memory_patterns()
    gpu, host, signs = compiled.gpu, compiled.host, compiled.signs
    # a progress bar overwrites its line by a carriage return: search each version alone
    rows = output_text.replace("\r", "\n").split("\n")
    found: list[tuple[int, OutOfMemory]] = []
    for number, row in enumerate(rows):
        line = row[:_LONGEST_LINE]
        if signs.search(line) is None:  # nearly all: this is ten times as fast
            continue
        tables = [(gpu, True), (host, False), (compiled.killed, False)]
        # in this order: a line about a GPU often matches the words for host memory, too
        for words, on_gpu in tables[: 3 if by_kill else 2]:
            match = words.search(line)
            if match is None or _only_mentions_message(
                line, match.start(), match.end()
            ):
                continue
            begin, end = match.span()
            device = compiled.names_gpu.search(line) if words is host else None
            if device is not None:  # and let the message name it
                begin, end = min(begin, device.start()), max(end, device.end())
            is_gpu = (on_gpu or device is not None) and not _is_on_cpu(line)
            found.append((number, OutOfMemory(line[begin:end].strip(" :"), is_gpu)))
            break
    # the program survived the last message if another error follows it
    if not found or _ended_otherwise(rows[found[-1][0] + 1 :]):
        return None
    # the first message is the cause; later ones can be its consequences
    return next((one for _, one in found if one.on_gpu), found[0][1])


# programs with a heap of a set size: their message, and the option that sets it
_HEAPS = (
    ("java.lang.OutOfMemoryError", r"-Xmx\d+[kmgtKMGT]?\b"),
    ("java.lang.OutOfMemoryError", r"-XX:MaxHeapSize=\d+[kmgtKMGT]?\b"),
    ("JavaScript heap out of memory", r"--max-old-space-size=\d+\b"),
)


def fixed_heap(message_text: str, command: str) -> str | None:
    """Return the option of *command* that set the size of the heap that was full.

    *message_text* are the program's message. More memory for the job cannot help then.
    """
    for message, option in _HEAPS:
        found = re.search(option, command) if message in message_text else None
        if found is not None:
            return found[0]
    return None


def ran_out_on_gpu(outcome: RunOutcome | None) -> bool | None:
    """Return whether a run ran out of GPU memory; None if unknown."""
    if outcome is None or not outcome.evidence:
        return None
    evidence = " ".join(outcome.evidence)
    tables = _compiled_memory_patterns().gpu, _compiled_memory_patterns().names_gpu
    named = any(words.search(evidence) for words in tables)
    return named and not _is_on_cpu(evidence)


def may_be_killed_for_memory(
    signal_number: int | None, exit_code: int | None, outcome: RunOutcome | None
) -> bool:
    """Return whether a run got SIGKILL, unless a count shows that memory was enough."""
    number = signal_number or signal_in_exit_code(exit_code)
    return number == _KILL and _NO_KILL not in (outcome.evidence if outcome else ())


def counted_no_kill(measurement: RunMeasurement) -> bool:
    """Return whether a run got SIGKILL, and the kernel killed nothing for memory."""
    number = measurement.signal or signal_in_exit_code(measurement.exit_code)
    return number == _KILL and measurement.oom_kills == 0


class _MemoryWords(NamedTuple):
    """The tables as regular expressions."""

    gpu: "re.Pattern[str]"
    host: "re.Pattern[str]"
    killed: "re.Pattern[str]"
    names_gpu: "re.Pattern[str]"
    about: "re.Pattern[str]"
    gone_on: "re.Pattern[str]"
    other_error: "re.Pattern[str]"
    signs: "re.Pattern[str]"  # one of them is in each message


@cache
def _compiled_memory_patterns() -> _MemoryWords:
    """Compile the table when first used: most runs do not use it."""
    # after a log's prefix: [rank0]:, 0:, ERROR [core.py:396], (EngineCore pid=7)
    start = r"(?:^|(?<=[\])>|:]\s))\s*"
    gpu, host, killed = (
        "|".join(f"(?:{word.replace('^', start, 1)})" for word in table)
        for table in (_GPU_WORDS, _HOST_WORDS, _KILLED_WORDS)
    )
    return _MemoryWords(
        re.compile(gpu),
        re.compile(host),
        re.compile(killed),
        re.compile(_NAMES_A_GPU),
        re.compile(_ABOUT, re.IGNORECASE),
        re.compile(_GONE_ON, re.IGNORECASE),
        re.compile(_OTHER_ERROR),
        re.compile("(?i:mem|alloc|oom|heap|killed|vector|array)"),
    )


def _only_mentions_message(output_line: str, start: int, match_end: int) -> bool:
    """Return whether a line only mentions the message from *start* to *match_end*."""
    about, gone_on = (
        _compiled_memory_patterns().about,
        _compiled_memory_patterns().gone_on,
    )
    before, after = output_line[:start].rstrip(), output_line[match_end:]
    quoted = before[-1:] in {"'", '"', "`"} and after[:1] == before[-1:]
    is_code = before.lstrip().startswith(("#", "//", "raise ", "except ", "echo "))
    is_code = is_code and before != "# There is"  # the Java machine's own report
    return bool(quoted or is_code or about.search(before) or gone_on.search(after))


def _is_on_cpu(output_line: str) -> bool:
    return re.search(_ON_CPU, output_line) is not None


def _ended_otherwise(output_rows: list[str]) -> bool:
    """Return whether an independent traceback of another kind follows."""
    other = _compiled_memory_patterns().other_error
    # lines that name an error other than lack of memory
    ends = [at for at, row in enumerate(output_rows) if other.match(row)]
    if not ends:
        return False
    begins = [at for at in range(ends[-1]) if output_rows[at].startswith(_TRACEBACK)]
    if not begins:
        return False
    # Python links a second traceback to the first: then memory was the cause after all
    above = (row for row in reversed(output_rows[: begins[-1]]) if row.strip())
    line = next(above, "")
    return not any(words in line for words in _CHAINED)


def signal_name(signal_number: int) -> str:
    """Return the name of a signal, such as SIGTERM."""
    return _SIGNAL_NAMES.get(signal_number, f"signal {signal_number}")


def signal_in_exit_code(exit_code: int | None) -> int | None:
    """Return the signal that a shell reports by *exit_code*; None for another code."""
    # only a known signal counts: 255 is an exit code of its own
    if exit_code is None or exit_code - SIGNAL_BASE not in _SIGNAL_NAMES:
        return None
    return exit_code - SIGNAL_BASE


def _kill_hints(signal_number: int, oom_kills: int | None) -> tuple[str, ...]:
    if signal_number == _XCPU:
        return ("the limit on CPU time was used up",)
    if signal_number != _KILL:
        return ()
    if oom_kills is None:
        return ("not known whether for memory: the cgroup cannot be read",)
    return (_NO_KILL,)


# what follows the error in a failed program's output: frames of Java and node, R's
# and Fortran's last words, what a launcher or make adds
_AFTERWORDS = (
    r"\s+at \S.*|\s*\.\.\. \d+ (?:more|common frames omitted)|Node\.js v\d\S*"
    r"|Execution halted|Calls: .*|Error termination\. Backtrace:|#\d+ +0x.*"
    r"|\w+: (?:error: .* Exited with exit code \d+|Terminating StepId.*)"
    r"|make(?:\[\d+\])?: Leaving directory .*"
)
_NAMED = (
    r"^\s*what\(\): +(.*)"  # C++
    r"|\bpanicked at .*:\n(.*)"  # Rust
    r"|^(panic: .*)"  # Go
    r"|^(ERROR: .*)\nStacktrace:"  # Julia
    r"|^(Fortran runtime error: .*)"
    r'|^Exception in thread "[^"]*" (.*)'  # Java
    r"|^(.* at \S+ line \d+\.)$"  # Perl
)
_ERROR_WORDS = (
    r"error(?![=: ]*[\d.])|exception|\bfail|fatal|cannot|can't|could not|\bunable"
    r"|denied|no such|not found|not recognized|invalid|illegal|undefined|missing"
    r"|\bkilled\b|exceed|(?<!de)fault|out of memory|no space|quota"
)
_RULE = "-" * 20  # opens and closes a box of mpirun
_OF_LAUNCHER = ("mpirun", "prterun", "MPI_ABORT", "Primary job")


# lines of a failure that are shown: the error, and what a script printed behind it. An
# error further up is not looked for: no script of the guides prints more than one line
# after its last command
_SHOWN = 3
# lines above the last one that name an error and are none: warnings, figures of a fit
_NO_ERROR = r"\bwarn|\b(?:no|0|without) (?:error|fail)|\d\.\d+ ?%?$|^[^:\]!]*$"
# a line of Python's traceback; the files of libraries and of Python itself
_FRAME = r'\s*File "(.+)", line (\d+)(?:, in (.+))?'
_OF_LIBRARY = r".*/(?:site|dist)-packages/.*|.*/lib/python3[\d.]*/.*|<.*"


def failure_line(output_text: str) -> str:
    """Return the line of a failed program's output that states why; empty if none.

    Secrets in it are hidden, as records and reports quote it.
    """
    return next(iter(failure_lines(output_text)), "")


def failure_lines(output_text: str) -> tuple[str, ...]:
    """Return at most three lines on why a program failed; the first states the cause.

    Below an exception of Python stands where it was raised, below the error of a
    command in a script what the script printed after it.
    """
    return tuple(MASK.line(line) for line in _lines_with_cause(output_text))


def _lines_with_cause(output_text: str) -> tuple[str, ...]:
    """Return the last line that states a cause, and what explains it.

    That is the last line, unless stack frames follow the error, or a script went on
    after it, or output that was buffered until the end (Python and Perl write theirs
    after a traceback).
    """
    every = [line.rstrip() for line in output_text.splitlines() if line.strip()]
    every = _without_summaries(every)
    lines = _without_launcher(every)
    # what stands behind the error is dropped from the end
    while lines and re.fullmatch(_AFTERWORDS, lines[-1]):
        lines.pop()
    if not lines:
        return (every[-1].strip(),) if every else ()
    last = lines[-1].strip()
    if len(lines) > 1 and lines[-1][0].isspace() and lines[-2].startswith("Error in "):
        return (f"{lines[-2]} {last}",)  # R breaks a long line
    in_thread = re.match(r'Exception in thread "[^"]*" (?=\S)', last)
    if in_thread is not None:  # Java
        return (last[in_thread.end() :],)
    raised = _exception_of_traceback(lines)
    if raised is not None and (last.endswith(raised) or not _names_an_error(last)):
        return (raised, *_place_of_exception(lines))
    return (last,) if _names_an_error(last) else _lines_from_error(lines)


def _lines_from_error(output_lines: list[str]) -> tuple[str, ...]:
    """Return the last error above the last line, and up to two lines behind it."""
    named = list(re.finditer(_NAMED, "\n".join(output_lines), re.MULTILINE))
    if named:
        return (named[-1][named[-1].lastindex or 0].strip(),)
    near = [line.strip() for line in output_lines[-_SHOWN:]]
    for place in reversed(range(len(near))):
        is_denied = re.search(_NO_ERROR, near[place], re.IGNORECASE)
        if _names_an_error(near[place]) and not is_denied:
            return tuple(near[place:])
    return (near[-1],)


def _names_an_error(output_line: str) -> bool:
    return re.search(_ERROR_WORDS, output_line, re.IGNORECASE) is not None


def _place_of_exception(output_lines: list[str]) -> tuple[str, ...]:
    """Return where the last exception of Python was raised, in the user's own code."""
    frames = [re.search(f"{_FRAME}$", line) for line in _below_traceback(output_lines)]
    # the innermost first
    found = [frame for frame in reversed(frames) if frame is not None]
    own = (frame for frame in found if not re.fullmatch(_OF_LIBRARY, frame[1]))
    frame = next(own, next(iter(found), None))
    if frame is None:
        return ()
    function = "" if frame[3] in {None, "<module>"} else f", in {frame[3]}"
    return (f"{frame[1].rpartition('/')[2]}, line {frame[2]}{function}",)


_ERROR_SIGNS = (_TRACEBACK, "Execution halted", "Exception in thread", "panicked at")


def error_at_end(output_text: str) -> str | None:
    """Return the error that the last output of a program with exit code 0 ends in.

    Secrets in it are hidden.
    """
    if not any(sign in output_text for sign in _ERROR_SIGNS):
        return None
    lines = [line.rstrip() for line in output_text.splitlines() if line.strip()]
    error = _exception_of_traceback(lines)
    if error is None:
        error = next((o for o in reversed(lines) if o.startswith(_ERROR_SIGNS[1:])), "")
    return MASK.line(error) if error in lines[-_SHOWN:] else None


def _without_summaries(output_lines: list[str]) -> list[str]:
    """Return *output_lines* without what weigh run and weigh exec print at the end.

    A script that has ``weigh run`` in it ends with that. Why exec stopped stays.
    """
    kept, is_summary = [], False
    for line in output_lines:
        is_summary = line.startswith("weigh  ") or (is_summary and line[:2] == "  ")
        if not is_summary or line.startswith("  stopped "):
            kept.append(line)
    return kept


def _without_launcher(output_lines: list[str]) -> list[str]:
    """Return *output_lines* without the boxes that mpirun prints at the end."""
    kept = list(output_lines)
    while kept and kept[-1].startswith(_RULE):
        # from the closing rule up to the opening one
        begin = len(kept) - 2
        while begin >= 0 and not kept[begin].startswith(_RULE):
            begin -= 1
        box = "\n".join(kept[max(begin, 0) : -1])
        # a box of the program's own stays
        if begin < 0 or not any(name in box for name in _OF_LAUNCHER):
            break
        del kept[begin:]
    return kept


def _exception_of_traceback(output_lines: list[str]) -> str | None:
    """Return the exception below Python's last traceback, without a rank's name."""
    # frames are indented, the exception is not
    lines = _below_traceback(output_lines)
    return next((line for line in lines if line and not line[0].isspace()), None)


def _below_traceback(output_lines: list[str]) -> list[str]:
    """Return the lines below Python's last traceback, of the rank that printed it."""
    heads = [
        at for at, line in enumerate(output_lines) if line.endswith(f"{_TRACEBACK}:")
    ]
    if not heads:
        return []
    # launchers put a rank's name before each line: follow only the rank that failed
    prefix = output_lines[heads[-1]].removesuffix(f"{_TRACEBACK}:")
    return [
        line.removeprefix(prefix)
        for line in output_lines[heads[-1] + 1 :]
        if line.startswith(prefix)
    ]
