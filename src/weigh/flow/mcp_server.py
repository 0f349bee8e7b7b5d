"""``weigh mcp``: weigh's verbs as tools for agents, by the Model Context Protocol.

Each tool runs `weigh` in a process of its own and returns its JSON, so an agent gets
what a person gets, and the tools need no code of their own. Nothing is submitted unless
the server was started so, and no more than its budget.
"""

import json
import os
import secrets
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from typing import IO, Any

import msgspec

from weigh._version import __version__
from weigh.errors import FAILED, USAGE, UsageError, WeighError
from weigh.model.job import ACTIVE
from weigh.regular_file import only_regular
from weigh.render.printable import last_line_of
from weigh.units import HOUR, format_limit, parse_limit

# in the order in which a job goes through them
TOOLS = (
    "run",
    "request",
    "plan",
    "submit",
    "confirm",
    "status",
    "wait",
    "logs",
    "cancel",
    "report",
)
_INSTRUCTIONS = """\
Measure one run of a command with run, read what to request with request, pack many runs
with plan, check the job script with submit, send it with confirm, wait until the job
has ended or needs a decision, read its logs, compare requested and used with report.
Bytes and seconds are numbers; null is not measured. Never guess GPU memory: it is only
measured on a GPU."""
_LONGEST_OUTPUT = 4000  # characters of a command's output that an agent gets
_PATIENCE = 120.0  # seconds for a verb that runs no job
_PIECE, _MOST_KEPT = 1 << 16, 64 << 20  # bytes; of a slow writer's pieces fewer
_LONGEST_LOG = 16_000  # characters
_LOOK_EVERY = 10.0  # seconds; the scheduler itself is queried less often
_NOTICE = 0.5  # seconds until a wait notices that its client has left
_GRACE = 15.0  # seconds until a stopped command is killed


class AgentLimits(msgspec.Struct, frozen=True, kw_only=True):
    """What agents may do: submit at all, CPU and GPU hours in all, seconds of a run."""

    submit: bool = False  # a server starts without the right to submit
    cpu_hours: float | None = None  # None: no limit
    gpu_hours: float | None = None  # None: no limit
    run_time: float = 600.0  # seconds


class ShownSubmission(msgspec.Struct, frozen=True):
    """What submit has shown, and confirm sends."""

    folder: str
    argv: tuple[str, ...]
    costs: Mapping[str, float | None]
    """CPU and GPU hours; None without a time limit."""
    plan_text: bytes
    """Of plan.json: another plan in its place is not what was shown."""


class RefusedCall(Exception):  # noqa: N818 - what an agent reads
    """A tool did not do it; the message says why, and the way out.

    ``code`` is the exit code of the verb, 0 if none ran.
    """

    def __init__(self, message: str, code: int = 0) -> None:
        super().__init__(message)
        self.code = code


class AgentTools:
    """What agents can call; the methods' docstrings are what they read."""

    def __init__(
        self,
        folder: str,
        limits: AgentLimits,
        check_client: Callable[[], object] = lambda: None,
    ) -> None:
        """*check_client* raises once the client of a call has left or cancelled it."""
        self._folder = folder
        self._limits = limits
        self._check_client = check_client
        # hours submitted since the server started
        self._spent = {"CPU": 0.0, "GPU": 0.0}
        self._shown: dict[str, ShownSubmission] = {}  # by token
        self._sent: set[str] = set()  # ids of jobs
        # failures that an answer has shown, by job: further ones are news
        self._known_failures: dict[str, int] = {}
        self._lock = threading.Lock()  # the SDK runs calls side by side

    def run(
        self,
        command: list[str],
        label: str | None = None,
        parameters: dict[str, str | int | float] | None = None,
    ) -> dict[str, Any]:
        """Run a command on this machine and measure it: memory, time, CPUs, GPUs.

        The command is a list of words, without a shell. Use a short but typical run,
        such as one epoch. Returns the record, and the end of the output.
        """
        if not command:
            raise RefusedCall("the command is empty")
        options = [] if label is None else [f"--label={label}"]
        options += [
            f"--param={key}={value}" for key, value in (parameters or {}).items()
        ]
        with tempfile.TemporaryDirectory(prefix="weigh-") as kept:
            path = os.path.join(kept, "record.json")
            # -q: the record is in the file, and the summary would push out the
            # command's output
            argv = ["run", "-q", f"--output={path}", *options, "--", *command]
            code, output, error = self._call(argv, self._limits.run_time)
            try:
                with open(path, "rb") as file:
                    record: dict[str, Any] = json.load(file)
            except (OSError, ValueError) as why:
                raise RefusedCall(_end_of_output(error) or f"exit code {code}") from why
        # long, and of no use to an agent's next step
        for key in ("series", "monitor", "provenance"):
            record.pop(key, None)
        return {
            "record": record,
            "stdout": output[-_LONGEST_OUTPUT:],
            "stderr": error[-_LONGEST_OUTPUT:],
        }

    def request(
        self,
        record: str = "last",
        headroom: str | None = None,
        steps: str | None = None,
    ) -> dict[str, Any]:
        """Work out what to request from the scheduler for a record (id or label).

        steps is the length of the full job, after what was measured: 500/10000.
        """
        options = {"--headroom": headroom, "--target": steps}
        return self._read(
            ["request", "--json", *_command_line_flags(options), "--", record]
        )

    def plan(  # noqa: PLR0913, PLR0917 - what an agent fills in by name
        self,
        commands: list[str],
        name: str,
        cpus: int | None = None,
        memory: str | None = None,
        time: str | None = None,
        gpu: str | None = None,
        gpu_memory: str | None = None,
    ) -> dict[str, Any]:
        """Pack shell commands, one task each, onto nodes and GPUs, in plan/NAME/.

        What a task needs comes from earlier records of such commands; else give memory
        (2GiB), cpus, time (1h) and gpu_memory of one task. gpu is a type, such as v100.
        """
        # a name is a folder below plan/: no path, no hidden file, no option
        if not name or name != os.path.basename(name) or name.startswith((".", "-")):
            raise RefusedCall(
                f"{name!r:.40} is no name for a plan: use letters and digits"
            )
        lines = [line for line in commands if line.strip()]
        if not lines or any("\n" in line for line in lines):
            raise RefusedCall("commands: one shell command per task, each on one line")
        tasks = os.path.join(self._folder, f"{name}.txt")
        text = "".join(f"{line}\n" for line in lines)
        if "\0" in text:
            raise RefusedCall("commands: a command holds a NUL byte")
        try:
            with open(tasks, "x", encoding="utf-8") as file:  # follows no link
                file.write(text)
        except FileExistsError as error:
            # the same tasks again are no conflict: an agent may repeat a call
            if _text_of(tasks, len(text)) != text:
                raise RefusedCall(
                    f"{name}.txt exists and has other tasks: another name"
                ) from error
        options = {"--cpus": cpus, "--memory": memory, "--time": time, "--gpu": gpu}
        options["--gpu-memory"] = gpu_memory
        argv = [
            "plan",
            f"{name}.txt",
            f"--name={name}",
            "--json",
            *_command_line_flags(options),
        ]
        return self._read(argv)

    def submit(
        self,
        plan: str,
        queue: str | None = None,
        time: str | None = None,
        on: str | None = None,
    ) -> dict[str, Any]:
        """Write and check the job script of a plan, and send nothing yet.

        The answer has the script, the hours it may take and a token: confirm(token)
        sends what was shown. on is slurm, gridengine, htcondor or local (this machine).
        """
        # below this server's folder, whatever path the agent wrote
        folder = os.path.join("plan", os.path.basename(plan.rstrip("/")))
        costs = self._costs(folder, time)
        options = {"--queue": queue, "--time": time, "--on": on}
        # healing sends more than the budget counts, whatever the settings say
        argv = ("submit", folder, "--json", "--heal=no", *_command_line_flags(options))
        shown = self._read([*argv, "--dry-run"])
        token = secrets.token_hex(4)
        plan_text = self._plan_text(folder)
        self._shown[token] = ShownSubmission(folder, argv, costs, plan_text)
        return {"hours": costs, "token": token, **shown}

    def confirm(self, token: str) -> dict[str, Any]:
        """Submit what submit has shown, by the token of its answer, once.

        Needs a server that was started with --allow-submit, and counts against its
        budget: elements x CPUs (or GPUs) x time limit.
        """
        if not self._limits.submit:
            raise RefusedCall(
                "this server submits nothing: its user has to start it as "
                "weigh mcp --allow-submit HOURS; submit shows the script"
            )
        # counted before the scheduler is asked: its answer may be lost, and two
        # submissions could each fit the budget, but not both
        with self._lock:
            shown = self._shown.get(token)
            if shown is None:
                raise RefusedCall(f"no submission was shown as {token!r:.40}: submit")
            if self._plan_text(shown.folder) != shown.plan_text:
                raise RefusedCall(f"{shown.folder} has changed since: submit it again")
            self._check_budget(shown.costs)
            del self._shown[token]
            self._count_hours(shown.costs, 1)
        try:
            answer = self._read(shown.argv)
        except RefusedCall as refusal:
            # weigh itself refused it, so nothing was sent
            if refusal.code == USAGE:
                with self._lock:
                    self._count_hours(shown.costs, -1)
                raise
            raise RefusedCall(
                f"{refusal} (its hours stay counted: jobs may have been submitted)"
            ) from refusal
        sent = (answer["job"], *answer["more"])
        self._sent |= {str(one["id"]) for one in sent}
        return {"hours": shown.costs, "spent": dict(self._spent), **answer}

    def status(self, job: str | None = None) -> dict[str, Any]:
        """Show the state of jobs: done, failed, running, waiting tasks, and why."""
        answer = self._look(job)
        self._note_failures(answer)
        return answer

    def wait(self, job: str = "last", seconds: float = 3600) -> dict[str, Any]:
        """Wait until a job has ended or needs a decision; one call in place of many.

        Returns its state, as status does, and why: ended, failed (more tasks than the
        last answer on this job showed), stuck (it can never start), or time (seconds
        have passed).
        """
        until = time.monotonic() + seconds
        while True:
            answer = self._look(job)
            standing = answer["jobs"][0]
            known = self._known_failures.get(standing["job"]["id"], 0)
            is_news = len(standing["failures"]) > known
            why = _why_to_decide(standing, more_failed=is_news)
            if why is None and time.monotonic() < until:
                self._pause(min(_LOOK_EVERY, until - time.monotonic()))
            else:
                self._note_failures(answer)
                return {"why": why or "time", **answer}

    def _pause(self, seconds: float) -> None:
        ends_at = time.monotonic() + seconds
        while (left := ends_at - time.monotonic()) > 0:
            self._check_client()
            time.sleep(min(left, _NOTICE))

    def _look(self, job: str | None) -> dict[str, Any]:
        return self._read(["status", "--json", *([] if job is None else ["--", job])])

    def _note_failures(self, answer: Mapping[str, Any]) -> None:
        for one in answer["jobs"]:
            self._known_failures[one["job"]["id"]] = len(one["failures"])

    def logs(
        self, job: str = "last", task: int | None = None, lines: int = 40
    ) -> dict[str, Any]:
        """Return the last lines that a job's tasks printed, or one of its tasks."""
        words = [job] if task is None else [job, str(task)]
        code, output, error = self._call(["logs", f"--limit={lines}", "--", *words])
        if code:
            raise RefusedCall(_end_of_output(error) or f"exit code {code}", code)
        return {"output": output[-_LONGEST_LOG:]}

    def cancel(self, job: str) -> dict[str, Any]:
        """Cancel a job that this server has submitted."""
        if job not in self._sent:
            sent = ", ".join(sorted(self._sent)) or "none"
            raise RefusedCall(
                f"{job!r:.40} is no job that this server submitted ({sent}): its user "
                "can cancel it"
            )
        code, output, error = self._call(["cancel", "--", job])
        if code:
            raise RefusedCall(_end_of_output(error) or f"exit code {code}", code)
        return {"output": output.strip()}

    def report(self, name: str = "last") -> dict[str, Any]:
        """Compare requested and used for a job, plan or record, with what to change."""
        return self._read(["report", "--json", "--", name])

    def _costs(self, folder: str, time: str | None) -> dict[str, float | None]:
        """Return the hours that a submission may take; None without a time limit."""
        limit = None if time is None else parse_limit(time)
        path = os.path.join(self._folder, folder, "plan.json")
        try:
            with open(path, "rb") as file:
                plan = json.load(file)
            if plan.get("then"):
                raise RefusedCall(
                    f"{folder} has a command behind '# weigh: then', a further job "
                    "that no budget counts: plan the tasks without it"
                )
            ask, elements = plan["ask"], len(plan["elements"])
            seconds = ask["time_limit"] if limit is None else limit
            if not seconds:  # to Slurm 0 is no limit
                return {"CPU": None, "GPU": None}
            hours = elements * (ask.get("nodes") or 1) * seconds / HOUR
            return {"CPU": hours * ask["cpus"], "GPU": hours * ask["gpus"]}
        except (OSError, ValueError, KeyError, TypeError) as error:
            raise RefusedCall(f"no plan in {folder}: make one with plan") from error

    def _plan_text(self, folder: str) -> bytes:
        with open(os.path.join(self._folder, folder, "plan.json"), "rb") as file:
            return file.read()

    def _count_hours(self, costs: Mapping[str, float | None], sign: int) -> None:
        for kind, hours in costs.items():
            self._spent[kind] += sign * (hours or 0)

    def _check_budget(self, costs: Mapping[str, float | None]) -> None:
        most = {"CPU": self._limits.cpu_hours, "GPU": self._limits.gpu_hours}
        for kind, limit in most.items():
            hours = costs[kind]
            if hours is None:
                raise RefusedCall(
                    "without a time limit no hours can be counted: give time"
                )
            total = self._spent[kind] + hours
            if limit is not None and total > limit:
                raise RefusedCall(
                    f"{total:g} {kind} hours exceed this server's budget of {limit:g} "
                    f"({self._spent[kind]:g} of them submitted before)"
                )

    def _read(self, argv: Sequence[str]) -> dict[str, Any]:
        """Return the JSON document that a verb prints."""
        code, output, error = self._call(argv)
        try:
            # FAILED is an answer, too: a check or report that found a problem prints
            # its document
            found = json.loads(output) if code <= FAILED else None
        except ValueError:
            found = None
        if not isinstance(found, dict):
            words = _end_of_output(error) or _end_of_output(output)
            raise RefusedCall(words or f"exit code {code}", code)
        return found

    def _call(
        self, argv: Sequence[str], patience: float = _PATIENCE
    ) -> tuple[int, str, str]:
        """Run a verb to its end, or to that of *patience*; return code and output.

        Of the output the end is kept. A command that ignores TERM is killed with weigh,
        and what still holds a pipe then is not waited for.
        """
        if any("\0" in word for word in argv):
            raise RefusedCall("a word holds a NUL byte: no program can get it")
        process = subprocess.Popen(
            # with -P no module in the agent's folder can replace one of weigh's
            [sys.executable, "-P", "-m", "weigh", *argv],
            cwd=self._folder,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            # a group of its own, so that it can be killed as a whole
            start_new_session=True,
        )
        output, error = (_OutputEnd(pipe) for pipe in (process.stdout, process.stderr))
        try:
            process.wait(patience)
            stopped = ""
        except subprocess.TimeoutExpired:
            process.terminate()  # weigh passes it on to the command
            with suppress(subprocess.TimeoutExpired):
                process.wait(_GRACE)
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()
            stopped = f"\nstopped after {format_limit(patience)}"
        return process.returncode, output.text(), error.text() + stopped


class _OutputEnd(threading.Thread):
    """Reads a pipe to its end, and keeps the last bytes of it."""

    def __init__(self, pipe: IO[bytes] | None) -> None:
        super().__init__(daemon=True)  # a process that left weigh may hold the pipe
        self._pipe = pipe
        self._kept = deque[bytes](maxlen=_MOST_KEPT // _PIECE)
        self.start()

    def run(self) -> None:
        """Read until the pipe is closed."""
        if self._pipe is None:
            return
        with self._pipe:
            while piece := self._pipe.read1(_PIECE):  # type: ignore[attr-defined]
                self._kept.append(piece)

    def text(self) -> str:
        """Return what was read, once the pipe is closed or after a second."""
        self.join(1)
        return b"".join([*self._kept]).decode("utf-8", "replace")


def _why_to_decide(standing: Mapping[str, Any], *, more_failed: bool) -> str | None:
    """Return why a job needs an agent now; None while it only goes on."""
    runs = sum(standing["tasks"].get(state, 0) for state in ("RUNNING", "UNKNOWN"))
    goes_on = runs + standing["tasks"].get("PENDING", 0)
    healing = standing["healing"]
    heals = healing and not healing["stopped"] and healing["state"] in ACTIVE
    if not goes_on and not heals:
        return "ended"
    if more_failed:
        return "failed"
    hopeless = [one["hopeless"] for one in standing["waiting"]]
    return "stuck" if not runs and hopeless and all(hopeless) else None


def _text_of(path: str, most: int) -> str | None:
    """Return the text of a file, with one character more than *most* at most."""
    try:
        with open(path, encoding="utf-8", opener=only_regular) as file:
            return file.read(most + 1)
    except (OSError, UnicodeDecodeError):
        return None


def _command_line_flags(options: Mapping[str, object]) -> list[str]:
    return [f"{name}={value}" for name, value in options.items() if value is not None]


def _end_of_output(text: str) -> str:
    return last_line_of(text).removeprefix("weigh: ")


def serve(folder: str, limits: AgentLimits) -> None:
    """Serve the tools on stdin and stdout until the client leaves.

    Raises:
        UsageError: the SDK is not installed.
    """
    try:
        import anyio.from_thread  # noqa: PLC0415 - of the SDK
        from mcp.server import MCPServer  # noqa: PLC0415 - an extra
        from mcp.server.mcpserver.exceptions import ToolError  # noqa: PLC0415 - as above
    except ImportError as error:
        raise UsageError(
            "weigh mcp needs the package mcp, version 2: pipx inject weigh mcp, or "
            "pip install 'weigh[mcp]'"
        ) from error
    server = MCPServer("weigh", instructions=_INSTRUCTIONS, version=__version__)
    tools = AgentTools(folder, limits, anyio.from_thread.check_cancelled)
    # the SDK reads names, types and docstrings of the methods to describe them
    for name in TOOLS:
        server.add_tool(_in_thread(getattr(tools, name), anyio, ToolError), name=name)
    try:
        server.run("stdio")
    except* ConnectionError:
        pass  # the client has left, and reads no answer


def _in_thread(tool: Any, anyio: Any, refusal: type[Exception]) -> Any:  # noqa: ANN401 - the SDK's
    """Return *tool* as a coroutine, so that the server answers while a command runs."""
    from functools import partial, wraps  # noqa: PLC0415 - only here

    # wraps keeps the signature, from which the SDK makes the tool's schema
    @wraps(tool)
    async def call(**words: Any) -> Any:  # noqa: ANN401 - as above
        try:
            return await anyio.to_thread.run_sync(partial(tool, **words))
        except (RefusedCall, WeighError, OSError, UnicodeError) as error:
            raise refusal(str(error)) from error

    return call
