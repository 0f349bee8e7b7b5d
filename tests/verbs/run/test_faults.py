import errno
import os
import subprocess
import sys
from collections.abc import Callable
from typing import NamedTuple

import pytest
from processes import WEIGH, Weigh

InNamespace = Callable[[str], tuple[str, ...]]
# long enough for a checkpoint and many looks
JOB = ("sh", "-c", "echo out; sleep 0.3; exit 7")


def _unharmed(
    done: "subprocess.CompletedProcess[bytes]", *, warnings: int
) -> list[str]:
    """Check that the job ran to its own end; give weigh's words of warning."""
    assert (done.returncode, done.stdout) == (7, b"out\n"), done.stderr
    lines = done.stderr.decode().splitlines()
    said = [line for line in lines if line.startswith("weigh: ")]
    assert len(said) == warnings, said
    assert "Traceback" not in done.stderr.decode()
    return said


def test_a_folder_that_cannot_be_written_costs_one_warning(
    nobodys_weigh: Weigh,
) -> None:
    nobodys_weigh.folder.chmod(0o555)
    if nobodys_weigh.prefix:
        os.chown(nobodys_weigh.folder, 0, 0)
    env = nobodys_weigh.env()
    del env["WEIGH_DIR"]
    (said,) = _unharmed(nobodys_weigh.run("--", *JOB, env=env), warnings=1)
    assert "Permission denied" in said
    assert "WEIGH_DIR" in said


class Fault(NamedTuple):
    """What is wrong around weigh, and the words of each warning that it prints."""

    said: tuple[str, ...] = ()
    shell: str = ":"  # runs before weigh, in its process
    mount: str = ""  # runs in a namespace of its own
    options: tuple[str, ...] = ()
    job: str = JOB[-1]


FULL = "{ cat /dev/zero > $WEIGH_DIR/filler 2> /dev/null; true; }"
SMALL = "mkdir $WEIGH_DIR && mount -t tmpfs -o size=32k none $WEIGH_DIR"
NO_PROC = "mount -t tmpfs none /proc"
LONGER = "echo out; sleep 0.8; exit 7"  # until programs are looked at
FAULTS = {
    "a full disk": Fault(("No space left on device",), mount=f"{SMALL} && {FULL}"),
    "a disk that is full behind the store": Fault(
        ("No space left on device",),
        mount=f"{SMALL} && mkdir -p $WEIGH_DIR/records && {FULL}",
    ),
    "a store that is a file": Fault(
        ("the record was not kept: cannot make",), "touch $WEIGH_DIR", "", ("-q",)
    ),
    "a file that takes nothing": Fault(
        ("/dev/full: record not written",), options=("-q", "-o", "/dev/full")
    ),
    "files that may have no size": Fault(("File too large",), "ulimit -f 0"),
    "little address space": Fault(shell="ulimit -v 400000"),
    "little CPU time": Fault(shell="ulimit -t 60"),
    "no locked memory": Fault(shell="ulimit -l 0"),
    "a small stack": Fault(shell="ulimit -s 256"),
    "few descriptors": Fault(
        shell="ulimit -n 64",
        job="for i in $(seq 40); do sleep 0.3 & done; wait; echo out; exit 7",
    ),
    "no /proc": Fault(("cannot read /proc",), mount=NO_PROC, job=LONGER),
    "no /proc, quietly": Fault(mount=NO_PROC, options=("-q",)),
    "processes that vanish while they are read": Fault(
        options=("--interval", "0.001"),
        job="for i in $(seq 400); do (:) & done; wait; echo out; exit 7",
    ),
    "a folder that was removed": Fault(shell="mkdir gone; cd gone; rmdir ../gone"),
}


@pytest.mark.parametrize("what", FAULTS)
def test_a_job_is_run_in_spite_of(
    weigh: Weigh, in_namespace: InNamespace, what: str
) -> None:
    fault = FAULTS[what]
    around = in_namespace(fault.mount) if fault.mount else ()
    prefix = (*around, "bash", "-c", f'{fault.shell} && exec "$@"', "bash")
    done = weigh.run(*fault.options, "--", "sh", "-c", fault.job, prefix=prefix)
    said = _unharmed(done, warnings=len(fault.said))
    assert all(words in line for words, line in zip(fault.said, said, strict=True))
    if "-q" in fault.options:
        assert done.stderr.count(b"\n") == len(said)
    if "removed" in what:
        assert weigh.record()["cwd"] is None


@pytest.mark.as_root
@pytest.mark.parametrize("option", ["hidepid=2", "hidepid=1", "subset=pid"])
def test_a_proc_that_hides_others_does_no_harm(
    weigh: Weigh,
    as_nobody: tuple[str, ...],
    in_namespace: InNamespace,
    option: str,
) -> None:
    line = f"mount -t proc -o {option} none /proc"
    tried = subprocess.run([*in_namespace(line), "true"], check=False)
    if tried.returncode:
        pytest.skip(f"this kernel does not mount /proc with {option}")
    prefix = (*in_namespace(line), *as_nobody)
    env = weigh.env(WEIGH_DIR="/nonexistent/store")
    done = weigh.run("--", *JOB, prefix=prefix, env=env, cwd="/")
    _unharmed(done, warnings=1)
    assert b"memory" in done.stderr


_SYSTEM_CALLS = {  # prctl, perf_event_open, kcmp
    "x86_64": (157, 298, 312),
    "aarch64": (167, 241, 272),
}
# Has the kernel refuse the system calls named first with the error named second.
REFUSE = """
import ctypes, os, struct, sys
numbers, error, *argv = sys.argv[1:]
load, equal, give = 0x20, 0x15, 0x06
steps = [(load, 0, 0, 0)]
calls = [int(word) for word in numbers.split(",")]
for left, call in enumerate(reversed(calls)):
    steps.insert(1, (equal, left + 1, 0, call))
steps += [(give, 0, 0, 0x7FFF0000), (give, 0, 0, 0x00050000 | int(error))]
program = ctypes.create_string_buffer(b"".join(struct.pack("HBBI", *s) for s in steps))
class Filter(ctypes.Structure):
    _fields_ = [("len", ctypes.c_ushort), ("filter", ctypes.c_void_p)]
filter = Filter(len(steps), ctypes.addressof(program))
prctl = ctypes.CDLL(None, use_errno=True).prctl
assert prctl(38, 1, 0, 0, 0) == 0, "no_new_privs"
assert prctl(22, 2, ctypes.byref(filter), 0, 0) == 0, os.strerror(ctypes.get_errno())
os.execvp(argv[0], argv)
"""


@pytest.fixture
def refusing() -> Callable[[int], tuple[str, ...]]:
    """Give the words under which the kernel refuses what measuring would like."""
    numbers = _SYSTEM_CALLS.get(os.uname().machine)
    if numbers is None:
        pytest.skip(f"no system call numbers for {os.uname().machine}")
    words = (sys.executable, "-c", REFUSE, ",".join(map(str, numbers)))
    tried = subprocess.run([*words, "1", "true"], capture_output=True, check=False)
    if tried.returncode:
        pytest.skip("no seccomp filter can be set here")
    return lambda error: (*words, str(error))


@pytest.mark.parametrize("error", [errno.EPERM, errno.ENOSYS])
def test_refused_system_calls_cost_one_warning(
    weigh: Weigh, refusing: Callable[[int], tuple[str, ...]], error: int
) -> None:
    done = weigh.run("--", *JOB, prefix=refusing(error))
    (said,) = _unharmed(done, warnings=1)
    assert "orphans" in said
    assert weigh.record()["usage"]["peak_memory"]["value"] > 0


def test_a_job_that_hides_from_its_own_user_is_measured_all_the_same(
    nobodys_weigh: Weigh,
) -> None:
    script = (
        "import ctypes, os, sys, time\n"
        "ctypes.CDLL(None).prctl(4, 0, 0, 0, 0)\n"
        "held = b'x' * (30 << 20)\n"
        "child = os.fork()\n"
        "time.sleep(0.3)\n"
        "if child:\n"
        "    os.wait()\n"
        "    print('out')\n"
        "    sys.exit(7)\n"
    )
    done = nobodys_weigh.run("--", sys.executable, "-c", script)
    _unharmed(done, warnings=0)
    peak = nobodys_weigh.record()["usage"]["peak_memory"]
    assert peak["high"] > 30 << 20


# weigh with a slip in its own code where it looks at processes, or at what it saw
SLIP = """
import sys
from weigh.measure import command, launcher, watcher
def slip(*_):
    raise RuntimeError("a slip")
if sys.argv.pop(1) == "look":
    watcher.TreeWatcher.look = slip
else:
    from weigh.store import checkpoint
    checkpoint.save_checkpoint = slip
from weigh.cli.main import run_cli
sys.exit(run_cli(sys.argv[1:], launcher.prepare(sys.argv[1:])))
"""


@pytest.mark.parametrize("where", ["look", "checkpoint"])
def test_a_slip_in_weighs_own_code_costs_one_warning(weigh: Weigh, where: str) -> None:
    job = ("sh", "-c", "echo out; sleep 1.5; exit 7")  # also if looks come late
    argv = [sys.executable, "-c", SLIP, where, "run", "--", *job]
    done = subprocess.run(
        argv, capture_output=True, env=weigh.env(), cwd=weigh.folder, check=False
    )
    (said,) = _unharmed(done, warnings=1)
    assert "RuntimeError: a slip" in said


def test_no_leave_to_start_a_process_is_reported_in_one_line(
    nobodys_weigh: Weigh,
) -> None:
    script = (
        "import os, resource, sys;"
        "resource.setrlimit(resource.RLIMIT_NPROC, (0, 0));"
        "os.execvp(sys.argv[1], sys.argv[1:])"
    )
    prefix = (sys.executable, "-c", script)
    done = nobodys_weigh.run("--", "touch", "made", prefix=prefix)
    assert done.returncode == 125
    assert done.stderr.count(b"\n") == 1
    assert b"cannot start a process" in done.stderr
    assert not (nobodys_weigh.folder / "made").exists()


@pytest.mark.parametrize("where", [">&-", "> /dev/full", "| true"])
@pytest.mark.parametrize("left", ["", "sleep 0.2 &"])
def test_a_stderr_that_takes_nothing_does_not_change_the_exit_code(
    weigh: Weigh, where: str, left: str
) -> None:
    weigh.store.write_text("in the way, which makes a warning")
    gone = f"{left} sleep 0.1; exit 7"
    line = f'{{ "$@" 2>&1; echo $? >&3; }} {where}'
    if not where.startswith("|"):
        line = f'"$@" 2{where}; echo $? >&3'
    done = subprocess.run(
        ["sh", "-c", f"exec 3>&1; {line}", "sh", *WEIGH, "run", "--", "sh", "-c", gone],
        stdout=subprocess.PIPE,
        env=weigh.env(),
        cwd=weigh.folder,
        check=False,
    )
    assert done.stdout == b"7\n"
