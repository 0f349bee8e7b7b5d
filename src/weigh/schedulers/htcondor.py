"""HTCondor: text, job scripts, commands, pool and accounting, in one file.

A cluster of HTCondor's is a job of ours, its processes are the elements, from 0. A job
that breaks a rule is put on hold: it stays in the queue until somebody removes it. All
commands print their answers in JSON, one description (ad) for each process. A job's
environment holds neither its id nor its request: they are in the file that
``_CONDOR_JOB_AD`` names. Sizes and times were observed on 23.9.6.
"""

import json
import math
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence

import msgspec

from weigh.errors import FormatError, UsageError
from weigh.model import cluster
from weigh.model.job import (
    STUCK,
    ElementState,
    JobRequest,
    JobScript,
    RecordedRequest,
    States,
)
from weigh.model.record import Allocation, RecordedJob, Request, State
from weigh.model.report import AccountedElement, without_impossible
from weigh.schedulers import job_script
from weigh.schedulers.kind import (
    AccountingWords,
    Argv,
    DialectOptions,
    DialectTraits,
    DialectVariables,
    SchedulerAccounting,
    SchedulerCommands,
    SchedulerKind,
    SchedulerLint,
    SchedulerQuery,
    SchedulerQuestion,
    SchedulerSite,
    SchedulerText,
    one_command,
)
from weigh.schedulers.words import (
    ParsedT,
    parsed_or_none,
    printed_size,
    whole_number,
)
from weigh.units import KIB, MIB, Bytes, Seconds

JOB_AD = "_CONDOR_JOB_AD"
_ATTRIBUTE = re.compile(r"^(\w+) = (-?\d{1,18})$", re.MULTILINE)
_LONGEST_AD = 1 << 20  # characters; the file is some KiB


def _job_ad(env: Mapping[str, str]) -> dict[str, int]:
    """Read the whole numbers of this job's description; empty outside a job."""
    try:
        with open(env[JOB_AD], encoding="utf-8", errors="replace") as file:
            text = file.read(_LONGEST_AD)
    except (KeyError, OSError, ValueError):
        return {}
    return {name: int(value) for name, value in _ATTRIBUTE.findall(text)}


class HTCondorText(SchedulerText):
    """HTCondor: sizes, times, flags and the environment of its jobs."""

    NAME = "htcondor"
    PREFIX = ""  # submit commands are lines of their own
    OPTIONS = DialectOptions(
        memory="request_memory = {}",
        time="allowed_job_duration = {}",
        cpus="request_cpus = {}",
        gpus="request_gpus = {}",
        no_gpus="no request_gpus",
    )

    def parse_memory(self, text: str) -> Bytes:
        """Read ``request_memory``: ``4G`` and ``4GB`` are 4 GiB, ``4`` is 4 MiB.

        Raises:
            FormatError: it is an expression, or condor_submit would reject it.
        """
        size = printed_size(text, bare="M")
        if size is None:
            raise FormatError(f"not an HTCondor size: {text!r} (write 500M or 4G)")
        return size

    def format_time(self, seconds: Seconds) -> str:
        """Write a time limit, which HTCondor counts in seconds."""
        return str(max(1, math.ceil(seconds)))

    def parse_time(self, text: str) -> int | None:
        """Read ``allowed_job_duration``, in seconds.

        Raises:
            FormatError: it is no number but an expression, or condor_submit rejects it.
        """
        seconds = whole_number(text.strip())
        if seconds is None:
            raise FormatError(f"not an HTCondor time: {text!r} (write seconds: 5400)")
        return seconds

    def directives(self, request: Request) -> tuple[str, ...]:
        """Return *request* as submit commands; unknown values are left out."""
        memory, limit = request.memory, request.time_limit
        values = {
            "request_cpus": request.cpus * (request.ntasks_per_node or 1),
            "request_memory": None if memory is None else self.format_memory(memory),
            "allowed_job_duration": None if limit is None else self.format_time(limit),
            "request_gpus": request.gpus or None,
        }
        pairs = (pair for pair in values.items() if pair[1] is not None)
        return tuple(f"{name} = {value}" for name, value in pairs)

    def allocation_from_environment(self, env: Mapping[str, str]) -> Allocation | None:
        """Read the resources of this job's slot; None outside a job."""
        ad = _job_ad(env)
        if "ClusterId" not in ad:
            return None
        memory = ad.get("MemoryProvisioned")
        return Allocation(
            scheduler=self.NAME,
            cpus=ad.get("CpusProvisioned") or None,
            memory=memory * MIB if memory else None,
            gpus=ad.get("RequestGPUs", 0),
            nodes=1,
        )

    def job_from_environment(self, env: Mapping[str, str]) -> RecordedJob | None:
        """Read the job's id, its place in the cluster and this attempt's number."""
        ad = _job_ad(env)
        if "ClusterId" not in ad:
            return None
        # a shadow starts for each attempt
        attempt = max(1, ad.get("NumShadowStarts", 1))
        return RecordedJob(str(ad["ClusterId"]), ad.get("ProcId"), attempt=attempt)

    def end_time(self, env: Mapping[str, str]) -> Seconds | None:
        """Read when this attempt's time limit ends, as epoch seconds, if set."""
        ad = _job_ad(env)
        begun, limit = ad.get("JobCurrentStartDate"), ad.get("AllowedJobDuration")
        return None if begun is None or limit is None else float(begun + limit)


TEXT = HTCondorText()


# ---- the jobs that it prints
_REMOVED, _COMPLETED, _HELD = 3, 4, 5
_STATES: dict[int, tuple[State, str | None]] = {
    1: ("PENDING", None),
    2: ("RUNNING", None),
    _REMOVED: ("RUNNING", "being removed"),
    _HELD: ("PENDING", "on hold by its user"),
    6: ("RUNNING", "transferring output"),
    7: ("RUNNING", "suspended"),
}
_BY_USER = frozenset({1, 15})  # condor_hold; hold = true
# why a job is on hold: weigh makes it end for these reasons. The second number matters
# for a site's own POLICY only
_OVER: dict[tuple[int, int | None], tuple[State, str]] = {
    (34, None): ("OUT_OF_MEMORY", "over its memory request"),
    (21, 102): ("OUT_OF_MEMORY", "over its memory request"),
    (46, None): ("TIMEOUT", "over allowed_job_duration"),
    (47, None): ("TIMEOUT", "over allowed_execute_duration"),
}


class CondorAd(msgspec.Struct, frozen=True, kw_only=True, rename="pascal"):
    """One process as condor_q and condor_history print it; MiB, KiB, seconds.

    What a user may write as an expression is of any type: see `number`.
    """

    cluster_id: int
    proc_id: int
    job_status: int = 0
    weigh_token: object = None
    exit_code: int | None = None
    exit_signal: int | None = None
    hold_reason: str | None = None
    hold_reason_code: int | None = None
    hold_reason_sub_code: int | None = None
    last_hold_reason_code: int | None = None
    last_hold_reason_sub_code: int | None = None
    remove_reason: str | None = None
    remote_host: str | None = None
    last_remote_host: str | None = None
    job_current_start_date: int | None = None
    entered_current_status: int | None = None
    total_submit_procs: int | None = None
    request_memory: object = None
    request_cpus: object = None
    gpus: object = msgspec.field(default=None, name="RequestGPUs")
    allowed_job_duration: object = None
    remote_wall_clock_time: float | None = None
    remote_user_cpu: float = 0.0
    remote_sys_cpu: float = 0.0
    resident_set_size: object = msgspec.field(default=None, name="ResidentSetSize_RAW")

    @property
    def node(self) -> str | None:
        """Return the node of the slot ``slot1_2@node``."""
        slot = self.remote_host or self.last_remote_host or ""
        return slot.rpartition("@")[2] or None

    @property
    def memory(self) -> Bytes | None:
        """Return the requested memory."""
        mebibytes = number(self.request_memory)
        return None if mebibytes is None else mebibytes * MIB

    def element(self) -> ElementState:
        """Return the state of the element, in the queue or after its end."""
        state, reason = self._judged()
        one = ElementState(
            state=state,
            reason=reason,
            started=self.job_current_start_date,
            node=self.node,
        )
        # one that runs again still has the end of its last attempt
        ends = {"exit_code": self.exit_code, "signal": self.exit_signal}
        ends["ended"] = self.entered_current_status
        return msgspec.structs.replace(one, **ends) if one.is_final else one

    def _judged(self) -> tuple[State, str | None]:
        if self.job_status == _HELD and self.hold_reason_code not in _BY_USER:
            over = _condor_end_state(self.hold_reason_code, self.hold_reason_sub_code)
            return over or ("FAILED", STUCK)
        # with a host it is still running there
        if self.job_status == _REMOVED and not self.remote_host:
            # weigh's jobs leave by themselves when they are on hold for using too much
            by_itself = "PeriodicRemove" in (self.remove_reason or "")
            over = _condor_end_state(
                self.last_hold_reason_code, self.last_hold_reason_sub_code
            )
            return (over if by_itself else None) or ("CANCELLED", None)
        if self.job_status == _COMPLETED:
            return ("COMPLETED" if self.exit_code == 0 else "FAILED"), None
        return _STATES.get(self.job_status, ("UNKNOWN", None))


def _condor_end_state(code: int | None, detail: int | None) -> tuple[State, str] | None:
    # most codes count without the second number
    return _OVER.get((code or 0, None)) or _OVER.get((code or 0, detail))


def number(value: object) -> int | None:
    """Return a whole number; None for an expression, which is printed as text."""
    # in JSON true is no number, and in Python it is an int
    return value if isinstance(value, int) and not isinstance(value, bool) else None


def _json_argv(kind: type[msgspec.Struct], command: str, *which: str) -> Argv:
    """Return *command*, which prints the fields of *kind* in JSON."""
    fields = ",".join(kind.__struct_encode_fields__)
    return (command, *which, "-json", "-attributes", fields)


def _read_list(command_output: str, kind: type[ParsedT]) -> list[ParsedT]:
    """Read a list of ads or slots; condor_q prints nothing if there are no jobs."""
    try:
        # mypy knows no such list
        return msgspec.json.decode(command_output.strip() or "[]", type=list[kind])  # type: ignore[valid-type]
    except (msgspec.DecodeError, UnicodeError) as error:
        raise FormatError("HTCondor's answer is cut off or no list") from error


def _read_or_none(command_output: str) -> Sequence[CondorAd]:
    return parsed_or_none(lambda out: _read_list(out, CondorAd), command_output) or ()


def _states(condor_ads: Iterable[CondorAd]) -> States:
    states: States = {}
    for ad in condor_ads:
        states.setdefault(str(ad.cluster_id), {})[ad.proc_id] = ad.element()
    return states


# ---- its commands
_REFUSED = re.compile(r"\bERROR: (.+)")


# ---- accounting
_POLLED = "polled now and then: a short job shows its start, not its peak"


def _accounted_condor_element(condor_ad: CondorAd) -> AccountedElement:
    resident = number(condor_ad.resident_set_size)
    return without_impossible(
        AccountedElement(
            element=condor_ad.proc_id,
            state=condor_ad.element().state,
            node=condor_ad.node,
            wall_time=condor_ad.remote_wall_clock_time,
            cpu_time=condor_ad.remote_user_cpu + condor_ad.remote_sys_cpu,
            max_rss=None if resident is None else resident * KIB,
            cpus=number(condor_ad.request_cpus),
            gpus=number(condor_ad.gpus),
            memory_asked=condor_ad.memory,
            time_limit=number(condor_ad.allowed_job_duration),
        )
    )


# ---- the pool: its slots limit a job. It has no queues: it is one
QUEUE = cluster.QueueLimits(name="pool", default=True)


class CondorSlot(msgspec.Struct, frozen=True, kw_only=True, rename="pascal"):
    """One slot: what it has in all, and of CPUs, MiB and GPUs what is left."""

    machine: str
    slot_type: str = "Static"
    state: str = ""
    start: object = True
    cpus: int = 0
    memory: int = 0
    gpus: int = msgspec.field(default=0, name="GPUs")
    total_slot_cpus: float = 0
    total_slot_memory: float = 0
    total_gpus: float = msgspec.field(default=0, name="TotalSlotGPUs")
    kind: str = msgspec.field(default=cluster.UNTYPED, name="GPUs_DeviceName")

    def used(self, total: float, left: int) -> int:
        """Return how much of *total* jobs use; a static slot is used as a whole."""
        is_claimed = self.slot_type == "Static" and self.state == "Claimed"
        return int(total) - (0 if is_claimed else left)


SLOTS = _json_argv(CondorSlot, "condor_status")


def nodes_of_slots(command_output: str) -> tuple[cluster.ClusterNode, ...]:
    """Read condor_status: the machines of the pool.

    Raises:
        FormatError: the output is truncated, or no list of slots.
    """
    machines: dict[str, list[CondorSlot]] = {}
    for slot in _read_list(command_output, CondorSlot):
        # dynamic slots are parts of the partitionable ones, and would count twice
        if slot.slot_type != "Dynamic":
            machines.setdefault(slot.machine, []).append(slot)
    return tuple(_condor_node(name, slots) for name, slots in machines.items())


def _condor_node(name: str, slots: Sequence[CondorSlot]) -> cluster.ClusterNode:
    cpus = int(sum(one.total_slot_cpus for one in slots))
    gpus = int(sum(one.total_gpus for one in slots))
    cpus_used = sum(one.used(one.total_slot_cpus, one.cpus) for one in slots)
    memory_used = sum(one.used(one.total_slot_memory, one.memory) for one in slots)
    gpus_used = sum(one.used(one.total_gpus, one.gpus) for one in slots)
    # a slot accepts jobs by its START expression; Owner: its machine is in use
    is_shut = all(o.state in {"Drained", "Owner"} or o.start is False for o in slots)
    return cluster.ClusterNode(
        name=name,
        state="DRAINING" if is_shut else cluster.state_by_use(cpus_used, cpus),
        queues=(QUEUE.name,),
        cpus=cpus,
        cpus_used=cpus_used,
        memory=int(sum(one.total_slot_memory for one in slots)) * MIB,
        memory_used=memory_used * MIB,
        gpus=(cluster.NodeGpus(slots[0].kind, gpus, gpus_used),) if gpus else (),
    )


# ---- a job script that is a submit description as well: condor_submit and bash read it
# bash takes the commands for the text of a here-document, condor_submit takes the body
# for the value of a variable; `queue` is the last line, since nothing may follow it
CLUSTER, PROCESS = "CONDOR_CLUSTER_ID", "CONDOR_PROC_ID"  # set by our scripts only
BODY = "# ---- the job, for bash"
# weigh makes a job end for the reasons in _OVER, which HTCondor keeps it on hold for
_ENDS = (
    "HoldReasonCode == 34 || HoldReasonCode == 46 || HoldReasonCode == 47"
    " || (HoldReasonCode == 21 && HoldReasonSubCode == 102)"
)
# the usual limit of a name that the site has not limited has many divisors for this
_LIMIT = 2308032


def _submit_commands(script: JobScript) -> Iterator[str]:
    wanted = script.request
    output = "/dev/null"
    if _can_hold(script.log):
        output = f"{_submit_value(script.log)}/$(ClusterId)_$(ProcId).out"
    name = re.sub(r"[^\w.=+-]+", "_", script.name)
    yield "executable = $(SUBMIT_FILE)"
    yield f"batch_name = {name}"
    yield f"output = {output}"
    yield f"error = {output}"
    yield f'environment = "{CLUSTER}=$(ClusterId) {PROCESS}=$(ProcId)"'
    yield "getenv = HOME, LANG, LOGNAME, PATH, SHELL, USER"
    # the plan is in a file system that the nodes share
    yield "should_transfer_files = NO"
    yield "+WeighScript = $(true)"
    if script.token:
        yield f'+WeighToken = "{script.token}"'
    yield from TEXT.directives(job_script.request_of(wanted))
    if wanted.gpu_type:
        kind = re.sub(r"[^\w -]", ".", wanted.gpu_type)
        yield f'require_gpus = regexp("{_condor_quoted(kind)}", DeviceName, "i")'
    yield f"periodic_remove = JobStatus == 5 && ({_ENDS})"
    if script.requeue:
        # a job that is not removed from the queue runs again
        yield f"on_exit_remove = ExitCode =!= {job_script.AGAIN}"
    if wanted.throttle and wanted.throttle < script.elements:
        # each element takes its share of the limit, so that so many fit at once
        share = _LIMIT // wanted.throttle
        yield f"concurrency_limits = weigh_{script.token or 'job'}:{share}"
    if wanted.account is not None:
        yield f"accounting_group = {_submit_value(wanted.account)}"
    if wanted.mail is not None:
        yield f"notify_user = {_submit_value(wanted.mail)}"
        yield "notification = Complete"
    yield from _user_submit_commands(script)


def _user_submit_commands(script: JobScript) -> Iterator[str]:
    """Yield the user's own commands; all conditions on machines become one."""
    needs = [f'Machine != "{_condor_quoted(node)}"' for node in script.request.exclude]
    if script.request.site.constraint:
        needs.append(f"({_submit_value(script.request.site.constraint)})")
    for name, value in script.request.extra:
        if name.lower() == "requirements":
            needs.append(f"({_submit_value(value)})")
        else:
            yield f"{_submit_value(name)} = {_submit_value(value)}"
    if needs:
        yield f"requirements = {' && '.join(needs)}"


def _can_hold(text: str) -> bool:
    """Return whether a line of a submit description can hold *text* at its end."""
    return text.isprintable() and text == text.strip() and not text.endswith("\\")


def _submit_value(text: str) -> str:
    """Return *text* as a value, in which ``$`` would begin a variable.

    Raises:
        UsageError: a line of a submit description cannot hold it.
    """
    if not _can_hold(text):
        raise UsageError(f"a submit description cannot hold {text!r}")
    return text.replace("$", "$(DOLLAR)")


def _condor_quoted(text: str) -> str:
    """Return *text* as part of a text in quotes."""
    if set('"\\') & set(text):
        raise UsageError(f"a submit description cannot hold {text!r}")
    return _submit_value(text)


class HTCondorCommands(SchedulerCommands):
    """HTCondor: how jobs are submitted, listed and cancelled."""

    RULES = job_script.ScriptRules(
        job_id=f"${CLUSTER}",
        requeue=f"code={job_script.AGAIN}",
        forget='$(grep -qsx "NumShadowStarts = 1" "$_CONDOR_JOB_AD" || '
        "echo --forget-survivors)",
    )
    LOGIN_HINT = "submit from an access point of the pool, or with --on local here"
    NO_CLUSTER = re.compile(r"Neither the environment variable CONDOR_CONFIG")
    SUBMITTED = re.compile(r"(\d{1,12})\.\d+ - \d+\.\d+")  # 42.0 - 42.9
    LOST = re.compile(
        r"connect|commit|contact|address of|communicat|time[d ]*out|SECMAN|transaction",
        re.IGNORECASE,
    )
    OWN: Mapping[str, str] = {
        **dict.fromkeys(("executable", "arguments", "universe"), "weigh writes it"),
        **dict.fromkeys(("output", "error"), "weigh logs shows the output"),
        "queue": "weigh plan makes the elements",
        "initialdir": "the job runs where it was submitted",
        "environment": "--setup 'export NAME=value' sets a variable",
        "should_transfer_files": "the nodes must share the plan's file system",
        "concurrency_limits": "--jobs limits it",
        "on_exit_remove": "weigh resume --requeue",
        "periodic_remove": "weigh resume --requeue",
    }

    def submit_argv(self, script: str) -> Argv:
        """Submit a script."""
        return ("condor_submit", "-terse", script)

    def verify_argv(self, script: str) -> Argv:
        """Return the command that reads a script and submits nothing."""
        return ("condor_submit", "-dry-run", "/dev/null", script)

    def parse_doubt(self, command_output: str) -> str | None:
        """Read why condor_submit would reject it."""
        found = _REFUSED.search(command_output)
        if found is None or self.LOST.search(found[1]):
            return None
        return f"condor_submit would reject the job: {found[1].strip()}"

    def queue_argv(self, user_name: str) -> Argv:
        """Return the command that lists the jobs of *user_name* in the queue."""
        theirs = f'Owner == "{user_name}"'
        return _json_argv(CondorAd, "condor_q", "-allusers", "-constraint", theirs)

    def parse_found(self, command_output: str, token: str) -> str | None:
        """Read the id of the job with the token.

        Raises:
            FormatError: the output is truncated.
        """
        ads = _read_list(command_output, CondorAd)
        return next((str(ad.cluster_id) for ad in ads if ad.weigh_token == token), None)

    def parse_queue(self, command_output: str) -> States:
        """Read condor_q.

        Raises:
            FormatError: the output is truncated, or a job has no number.
        """
        return _states(_read_list(command_output, CondorAd))

    def ended_argvs(self, job_ids: Sequence[str]) -> tuple[Argv, ...]:
        """Return one command for all jobs."""
        return (_json_argv(CondorAd, "condor_history", *job_ids),) if job_ids else ()

    def parse_ended(self, command_output: str) -> States:
        """Read condor_history, which lists the latest end first."""
        return _states(reversed(_read_or_none(command_output)))

    def cancel_argv(self, job_id: str, elements: Sequence[int] | None) -> Argv:
        """Return the command that removes a job or some of its elements."""
        some = (f"{job_id}.{element}" for element in elements or ())
        return ("condor_rm", *((job_id,) if elements is None else some))

    def session_flags(self, job_request: JobRequest) -> list[Argv]:
        """Refuse: only condor_submit opens a shell on a node, and needs sshd there.

        Raises:
            UsageError: always.
        """
        lines = TEXT.directives(job_script.request_of(job_request))
        words = " ".join(f"-append '{line}'" for line in lines)
        raise UsageError(f"for a shell on a node: condor_submit -interactive {words}")

    def render(self, script: JobScript) -> str:
        """Return the script of a job.

        Raises:
            UsageError: a line cannot hold a value.
        """
        head = (
            "# condor_submit reads this too: to the line before the job, and its end",
            f"batch_name= <<'{BODY}'",
            *_submit_commands(script),
            BODY,
            "true @=bash",
        )
        name = None if _can_hold(script.log) else f'"${CLUSTER}_${PROCESS}.out"'
        body = job_script.render_job_script(
            head, script, element=f'"${PROCESS}"', log=name, rules=self.RULES
        )
        tail = ("@bash", "true = true", f"queue {script.elements}", "")
        return "\n".join((body.rstrip("\n"), *tail))

    def log_name(self, job_id: str, element: int, *, is_array: bool) -> str:
        """Return the name of an element's log; every job is an array here."""
        return f"{job_id}_{element}.out"

    def understood(self, job_id: str) -> SchedulerQuestion[RecordedRequest | None]:
        """Ask by what shows the request of a job."""
        return one_command(
            _json_argv(CondorAd, "condor_q", f"{job_id}.0"), self.parse_understood
        )

    def parse_understood(self, command_output: str) -> RecordedRequest | None:
        """Read the request as HTCondor understood it; None if no job is listed."""
        for ad in _read_or_none(command_output):
            return RecordedRequest(
                memory=ad.memory,
                cpus=number(ad.request_cpus),
                gpus=number(ad.gpus),
                time_limit=number(ad.allowed_job_duration),
                elements=ad.total_submit_procs,
            )
        return None

    def why(self, job_id: str) -> SchedulerQuestion[str | None]:
        """Ask why an element is on hold."""
        return one_command(_json_argv(CondorAd, "condor_q", job_id), self.parse_why)

    def parse_why(self, command_output: str) -> str | None:
        """Read why an element is on hold."""
        reasons = (ad.hold_reason for ad in _read_or_none(command_output))
        return next(filter(None, reasons), None)

    def gpu_types(self) -> SchedulerQuestion[tuple[str, ...]]:
        """Ask by what lists the names of GPUs, one per line."""
        argv = ("condor_status", "-af", "GPUs_DeviceName")
        nothing = {"", "undefined"}
        return one_command(
            argv,
            lambda out: tuple(sorted({*map(str.strip, out.split("\n"))} - nothing)),
        )

    def runs_on_host(self, job_id: str, host_name: str) -> SchedulerQuestion[bool]:
        """Ask by what lists where the elements of a job run."""
        here = json.dumps(f"@{host_name}([.]|$)")
        runs = f"ClusterId == {job_id} && regexp({here}, RemoteHost)"
        argv = ("condor_q", "-allusers", "-constraint", runs, "-af", "ClusterId")
        return one_command(argv, lambda out: job_id in out.split())


COMMANDS = HTCondorCommands()


class HTCondorLint(SchedulerLint):
    """HTCondor: condor_submit -dry-run checks its job scripts."""

    GPUS = re.compile(r"request_gpus\s*=\s*[1-9]", re.IGNORECASE)


class HTCondorAccounting(SchedulerAccounting):
    """HTCondor: what its accounting reports."""

    WORDS = AccountingWords(
        memory="condor_history ResidentSetSize",
        unmeasured=_POLLED,
        below=f"{_POLLED}: trust weigh's",
        above="with control groups it includes the page cache",
        below_killed=_POLLED,
        above_killed="the size at which HTCondor ended the job",
        zero="the job ended before HTCondor first measured it",
        cpu_time="condor_history RemoteUserCpu + RemoteSysCpu",
        wall_time="condor_history RemoteWallClockTime",
    )

    def argv(self, job_id: str) -> Argv:
        """Return the command that lists a job with all its elements."""
        return _json_argv(CondorAd, "condor_history", job_id)

    def elements(self, command_output: str) -> Iterator[AccountedElement]:
        """Read condor_history, which lists the latest end of an element first."""
        return map(_accounted_condor_element, reversed(_read_or_none(command_output)))


ACCOUNTING = HTCondorAccounting()


class HTCondorSite(SchedulerSite):
    """HTCondor: the slots of its pool, which limit a job."""

    INSTEAD = "condor_status shows its slots, condor_q -allusers all jobs"
    LIMITS: Mapping[Argv, bool] = {SLOTS: True}

    def limits_of(
        self, texts: Mapping[Argv, str], query: SchedulerQuery
    ) -> cluster.ClusterLimits:
        """Return the limits: a job fits on a slot.

        Raises:
            FormatError: the output is cut off.
        """
        nodes = nodes_of_slots(texts[SLOTS])
        return cluster.ClusterLimits(queues=(QUEUE,), nodes=nodes, enforced=False)


# ---- what it is called, and in what it differs
class HTCondorScheduler(SchedulerKind):
    """HTCondor in the table of schedulers: see `kind.SchedulerKind`."""

    title = "HTCondor"
    lists = "condor_status"
    accounts = "condor_history"
    commands: tuple[str, ...] = (
        *("condor_submit", "condor_q", "condor_rm", "condor_status", "condor_history"),
        "condor_config_val",
    )
    starts = "condor_submit -interactive"
    probe: Argv = ("condor_q", "-totals")
    nodes_argv: Argv = ("condor_status", "-af", "Machine")
    directive = re.compile(  # bash would not take it for an assignment
        r"\s*(?:(?:executable|universe|output|arguments)\s+="
        r"|(?:request_\w+|should_transfer_files|\+\w+)\s*=\s*\S+\s*$"
        r"|queue(?:\s+\d+)?\s*$)",
        re.IGNORECASE,
    )
    variables = DialectVariables(
        job=("CONDOR_CLUSTER_ID",),
        element=("CONDOR_PROC_ID",),
        scratch=("_CONDOR_SCRATCH_DIR",),
        gpus=("_CONDOR_AssignedGPUs",),
        in_job=(JOB_AD,),
    )
    traits = DialectTraits(
        fits_nodes=True,
        element_name="{}.{}",
        waits=False,
        queues=False,
        takes_scripts=False,
        constraint="expression",
    )
    text = TEXT
    backend = COMMANDS
    accounting = ACCOUNTING
    site = HTCondorSite()
    lint = HTCondorLint()


KIND = HTCondorScheduler()
