import json
import os
import resource
import signal
import socket
import subprocess
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest
from processes import PATIENCE, WEIGH, Weigh, until

# Writes down all that a program can see of how it was started, but its parent.
FACTS = r"""
import fcntl, json, os, sys
out = sys.argv[1]
def stream(fd):
    try:
        status = os.fstat(fd)
    except OSError:
        return None
    try:
        at = os.lseek(fd, 0, os.SEEK_CUR)
    except OSError:
        at = None
    flags = fcntl.fcntl(fd, fcntl.F_GETFL)
    return [status.st_dev, status.st_ino, at, flags, os.isatty(fd)]
def status():
    text = open("/proc/self/status").read()
    lines = dict(line.split(":", 1) for line in text.splitlines())
    names = "Umask SigBlk SigIgn SigCgt CapEff NoNewPrivs Seccomp Cpus_allowed Uid Gid"
    return {name: lines.get(name) for name in names.split()}
def own(fd):  # not the listing of /proc/self/fd
    return os.path.exists(f"/proc/self/fd/{fd}")
listed = [fd for fd in os.listdir("/proc/self/fd") if own(fd)]
seen = {fd: os.readlink(f"/proc/self/fd/{fd}") for fd in listed}
stat = open("/proc/self/stat").read().rpartition(")")[2].split()
words = open("/proc/self/environ", "rb").read().decode("latin-1").split("\0")
facts = {
    "streams": [stream(fd) for fd in range(3)],
    "descriptors": sorted(seen.items()),
    "status": status(),
    "cwd": os.getcwd(),
    "nice": os.nice(0),
    "limits": open("/proc/self/limits").read(),
    "group": os.getpgrp(),
    "session": os.getsid(0),
    "environ": sorted(word for word in words if not word.startswith("WEIGH_")),
    "terminal": stat[4],
    "oom": open("/proc/self/oom_score_adj").read(),
    "argv": [os.fsencode(word).hex() for word in sys.argv],
}
open(out, "w").write(json.dumps(facts))
"""


def _facts(prefix: Sequence[str], folder: Path, **options: Any) -> dict[str, Any]:
    """Start the witness of facts behind *prefix*; give what it saw."""
    script, out = folder / "facts.py", folder / "facts.json"
    script.write_text(FACTS)
    argv = [*prefix, sys.executable, "-I", str(script), str(out)]
    subprocess.run(argv, check=True, cwd=folder, **options)
    facts: dict[str, Any] = json.loads(out.read_text())
    out.unlink()
    return facts


def _same_under_weigh(weigh: Weigh, folder: Path, **options: Any) -> dict[str, Any]:
    """Check that a job sees the same with and without weigh; give what it saw."""
    options.setdefault("env", weigh.env())
    plain = _facts([], folder, **options)
    weighed = _facts([*WEIGH, "run", "-q", "--"], folder, **options)
    assert weighed == plain
    return weighed


def _file(mode: str, position: int) -> int:
    """Open a file that is in no folder any more, and is read or written so far."""
    path = Path(f"stream-{os.getpid()}").absolute()
    path.write_bytes(b"0123456789")
    fd = os.open(path, os.O_RDWR | (os.O_APPEND if mode == "a" else 0))
    path.unlink()
    os.lseek(fd, position, os.SEEK_SET)
    return fd


def _files() -> list[int]:
    return [_file("r", 5), _file("r", 7), _file("a", 0)]


def _pipes() -> list[int]:
    ends = [os.pipe() for _ in range(3)]
    return [ends[0][0], ends[1][1], ends[2][1], ends[0][1], ends[1][0], ends[2][0]]


def _one_pipe() -> list[int]:
    reading, writing = os.pipe()
    return [os.open(os.devnull, os.O_RDONLY), writing, writing, reading]


def _terminal() -> list[int]:
    master, slave = os.openpty()
    return [slave, slave, slave, master]


def _sockets() -> list[int]:
    one, other = (end.detach() for end in socket.socketpair())
    os.set_blocking(other, False)
    return [other, other, other, one]


@pytest.mark.few(3)
@pytest.mark.parametrize("opened", [_pipes, _one_pipe, _files, _terminal, _sockets])
def test_streams_are_the_very_same_open_files(
    weigh: Weigh,
    tmp_path: Path,
    opened: Callable[[], list[int]],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.chdir(tmp_path)
    stdin, stdout, stderr, *others = opened()
    _same_under_weigh(weigh, tmp_path, stdin=stdin, stdout=stdout, stderr=stderr)
    for fd in {stdin, stdout, stderr, *others}:
        os.close(fd)


@pytest.mark.few(3)
@pytest.mark.parametrize("closed", [(0,), (1,), (2,), (0, 2), (1, 2), (0, 1, 2)])
def test_a_closed_stream_stays_closed(
    weigh: Weigh, tmp_path: Path, closed: tuple[int, ...]
) -> None:
    def close() -> None:
        for number in closed:
            os.close(number)

    seen = _same_under_weigh(weigh, tmp_path, preexec_fn=close)
    assert [fd for fd in range(3) if seen["streams"][fd] is None] == list(closed)


def test_further_descriptors_of_the_shell_reach_the_job(each_weigh: Weigh) -> None:
    reading, writing = os.pipe()
    job = (sys.executable, "-c", f"import os; os.write({writing}, b'heard')")
    assert each_weigh.run("--", *job, pass_fds=(writing,)).returncode == 0
    os.close(writing)
    with open(reading) as pipe:
        assert pipe.read() == "heard"


def _change_surroundings() -> None:
    os.umask(0o027)
    os.nice(3)
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    resource.setrlimit(resource.RLIMIT_NOFILE, (77, 99))
    signal.signal(signal.SIGHUP, signal.SIG_IGN)
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGUSR1, signal.SIG_IGN)
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGUSR2, signal.SIGTERM})
    os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})
    Path("/proc/self/oom_score_adj").write_text("500")


def test_limits_masks_and_the_rest_reach_the_job(weigh: Weigh, tmp_path: Path) -> None:
    seen = _same_under_weigh(weigh, tmp_path, preexec_fn=_change_surroundings)
    assert int(seen["status"]["SigIgn"], 16) & 1 << signal.SIGUSR1 - 1
    assert int(seen["status"]["SigBlk"], 16) & 1 << signal.SIGUSR2 - 1


@pytest.mark.few(3)
@pytest.mark.parametrize(
    "locale",
    [
        {},
        {"LANG": "C"},
        {"LC_CTYPE": "C"},
        {"LC_CTYPE": "C.UTF-8"},
        {"LANG": "en_US.UTF-8"},
        {"LC_ALL": "C"},
        {"LC_ALL": "", "LANG": "POSIX"},
    ],
)
def test_the_environment_is_the_jobs_own(
    weigh: Weigh, tmp_path: Path, locale: dict[str, str]
) -> None:
    plain = {k: v for k, v in weigh.env().items() if k != "LANG" and k[:3] != "LC_"}
    odd = {"LINES_IN": "a\nb", "EMPTY": "", "BYTES": os.fsdecode(b"\xff\xfe")}
    _same_under_weigh(weigh, tmp_path, env={**plain, **odd, **locale})


def test_what_the_job_leaves_of_its_input_is_there_for_the_next(weigh: Weigh) -> None:
    words = 'read first; echo "job $first"'
    both = f"{' '.join(WEIGH)} run -q -- sh -c '{words}'; cat"
    done = subprocess.run(
        ["sh", "-c", both],
        input=b"one\ntwo\n",
        capture_output=True,
        env=weigh.env(),
        cwd=weigh.folder,
        check=True,
    )
    assert done.stdout == b"job one\ntwo\n"


def test_a_reader_that_leaves_ends_the_job_as_without_weigh(weigh: Weigh) -> None:
    reading, writing = os.pipe()
    process = weigh.start("run", "-q", "--", "yes", stdout=writing)
    os.close(writing)
    until(lambda: os.read(reading, 4096))
    os.close(reading)
    assert process.wait(PATIENCE) == 128 + signal.SIGPIPE


def test_words_go_to_stderr_after_the_job_and_never_to_stdout(weigh: Weigh) -> None:
    script = "echo out; echo err >&2"
    done = weigh.run("--", "sh", "-c", script)
    assert done.stdout == b"out\n"
    assert done.stderr.startswith(b"err\nweigh  COMPLETED")
    assert weigh.run("-q", "--", "sh", "-c", script).stderr == b"err\n"


@pytest.mark.parametrize("count", [2, 5, 34])
def test_each_repeat_gets_the_same_streams(weigh: Weigh, count: int) -> None:
    words = ["-q", "--repeat", f"{count - 1},1"]
    done = weigh.run(*words, "--", "sh", "-c", "echo one; ls /proc/self/fd | wc -l")
    lines = done.stdout.decode().split()
    assert done.returncode == 0
    assert lines == ["one", lines[1]] * count
    assert not weigh.left()
