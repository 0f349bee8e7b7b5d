"""A job script that is a submit description as well: condor_submit and bash read it.

HTCondor reads its commands from a file of their own, which names the program to run.
One file is easier to keep, to read and to send: bash takes the commands for the text
of a here-document, and condor_submit the body for the value of a variable. ``queue``
is the last line, since nothing may follow it.
"""

import re
from collections.abc import Iterator

from weigh.errors import UsageError
from weigh.model.job import JobScript
from weigh.schedulers.htcondor.text import directives
from weigh.schedulers.job_script import AGAIN, ScriptRules, render, request_of

CLUSTER, PROCESS = "CONDOR_CLUSTER_ID", "CONDOR_PROC_ID"  # set by our scripts only
RULES = ScriptRules(
    job_id=f"${CLUSTER}",
    requeue=f"code={AGAIN}",
    forget='$(grep -qsx "NumShadowStarts = 1" "$_CONDOR_JOB_AD" || '
    "echo --forget-survivors)",
)
BODY = "# ---- the job, for bash"
_OPEN, _CLOSE = "true @=bash", "@bash"
# weigh makes a job end for these reasons, which HTCondor would keep it on hold for: its
# own limit of memory (34), a site's (21, 102), the time limit (46, 47)
_OVER = (
    "HoldReasonCode == 34 || HoldReasonCode == 46 || HoldReasonCode == 47"
    " || (HoldReasonCode == 21 && HoldReasonSubCode == 102)"
)
# the usual limit of a name that the site has not limited has many divisors for this
_LIMIT = 2308032
_PASSED_ON = "HOME, LANG, LOGNAME, PATH, SHELL, USER"


def render_script(script: JobScript) -> str:
    """Return the script of a job.

    Raises:
        UsageError: a line cannot hold a value.
    """
    head = (
        "# condor_submit reads this file too: to the line before the job, and its end",
        f"batch_name= <<'{BODY}'",
        *_commands(script),
        BODY,
        _OPEN,
    )
    element = f'"$(({PROCESS} + {script.first}))"' if script.first else f'"${PROCESS}"'
    log = None if _can_hold(script.log) else f'"${CLUSTER}_${PROCESS}.out"'
    text = render(head, script, element=element, log=log, rules=RULES)
    tail = (_CLOSE, "true = true", f"queue {script.elements}", "")
    return "\n".join((text.rstrip("\n"), *tail))


def log_name(job: str, element: int, *, is_array: bool) -> str:  # noqa: ARG001
    """Return the name of an element's log; every job is an array here."""
    return f"{job}_{element}.out"


def _commands(script: JobScript) -> Iterator[str]:
    wanted = script.request
    log = "/dev/null"
    if _can_hold(script.log):
        log = f"{_value(script.log)}/$(ClusterId)_$(ProcId).out"
    name = re.sub(r"[^\w.=+-]+", "_", script.name)
    yield "executable = $(SUBMIT_FILE)"
    yield f"batch_name = {name}"
    yield f"output = {log}"
    yield f"error = {log}"
    yield f'environment = "{CLUSTER}=$(ClusterId) {PROCESS}=$(ProcId)"'
    yield f"getenv = {_PASSED_ON}"
    yield "should_transfer_files = NO"
    yield "+WeighScript = $(true)"
    if script.token:
        yield f'+WeighToken = "{script.token}"'
    yield from directives(request_of(wanted))
    if wanted.gpu_type:
        kind = re.sub(r"[^\w -]", ".", wanted.gpu_type)
        yield f'require_gpus = regexp("{_word(kind)}", DeviceName, "i")'
    yield f"periodic_remove = JobStatus == 5 && ({_OVER})"
    if script.requeue:
        yield f"on_exit_remove = ExitCode =!= {AGAIN}"
    if wanted.throttle and wanted.throttle < script.elements:
        name = script.token or "job"
        yield f"concurrency_limits = weigh_{name}:{_LIMIT // wanted.throttle}"
    if wanted.account is not None:
        yield f"accounting_group = {_value(wanted.account)}"
    if wanted.mail is not None:
        yield f"notify_user = {_value(wanted.mail)}"
        yield "notification = Complete"
    yield from _others(script)


def _others(script: JobScript) -> Iterator[str]:
    """Yield the user's own commands; all conditions on machines become one."""
    needs = [f'Machine != "{_word(node)}"' for node in script.request.exclude]
    if script.request.site.constraint:
        needs.append(f"({_value(script.request.site.constraint)})")
    for name, value in script.request.extra:
        if name.lower() == "requirements":
            needs.append(f"({_value(value)})")
        else:
            yield f"{_value(name)} = {_value(value)}"
    if needs:
        yield f"requirements = {' && '.join(needs)}"


def _can_hold(text: str) -> bool:
    """Return whether a line of a submit description can hold *text* at its end."""
    return text.isprintable() and text == text.strip() and not text.endswith("\\")


def _value(text: str) -> str:
    """Return *text* as a value, in which ``$`` would begin a variable.

    Raises:
        UsageError: a line of a submit description cannot hold it.
    """
    if not _can_hold(text):
        raise UsageError(f"a submit description cannot hold {text!r}")
    return text.replace("$", "$(DOLLAR)")


def _word(text: str) -> str:
    """Return *text* as part of a text in quotes."""
    if set('"\\') & set(text):
        raise UsageError(f"a submit description cannot hold {text!r}")
    return _value(text)
