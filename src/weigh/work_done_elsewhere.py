"""Recognise a run that only asked others to do the work: a client of a daemon.

Its figures are those of the client, whatever the work needs. A program counts as one by
its name and words, and only if it used next to nothing: where the work was done by
processes of the run (a stand-in for ``srun``, a container engine without a daemon), its
usage is the work's.
"""

from collections.abc import Iterator, Sequence

from weigh.model.gpu import GpuUsage
from weigh.model.record import Record
from weigh.units import MIB, Bytes, Seconds

_INSIDE = ", which was not measured: put weigh run inside"
_DAEMON = ("handed the work to a daemon", _INSIDE)
_POD = ("handed the work to pods", ", which were not measured: put weigh run inside")
_JOB = ("started a job that did the work", _INSIDE)
_HOST = (
    "ran the work on another host",
    ", which was not measured: put weigh run there",
)
_SERVICE = (
    "asked a service for the work",
    ", which was not measured: weigh run the service",
)
_SERVER = ("handed the work to its server", _INSIDE)
_ALWAYS = frozenset[str]()
_OF_DOCKER = frozenset({"run", "exec", "start", "compose", "up", "build"})
_OF_KUBECTL = frozenset({"run", "exec", "apply", "create", "wait", "attach"})
_OF_TMUX = frozenset({"new-session", "new", "new-window", "neww", "send-keys", "send"})
_OF_CURL = frozenset({"-d", "--data", "--json", "-F", "--data-binary", "POST"})
# clients: words of which one has to be there, and who does the work
_ROWS = (
    ("docker docker-compose com.docker.cli", _OF_DOCKER, _DAEMON),
    ("podman podman-compose nerdctl", _OF_DOCKER, _DAEMON),
    ("systemd-run", _ALWAYS, _DAEMON),
    ("kubectl oc", _OF_KUBECTL, _POD),
    ("sbatch srun salloc qsub qrsh bsub condor_wait condor_run", _ALWAYS, _JOB),
    ("ssh pdsh clush rsh", _ALWAYS, _HOST),
    ("tmux", _OF_TMUX, _SERVER),
    ("screen", frozenset({"-d", "-dm", "-dmS", "-X"}), _SERVER),
    ("ollama", frozenset({"run"}), _SERVICE),
    ("curl", _OF_CURL, _SERVICE),
    ("grpcurl", _ALWAYS, _SERVICE),
    ("ray", frozenset({"job", "submit"}), _SERVICE),
)
_CLIENTS = {name: (words, who) for names, words, who in _ROWS for name in names.split()}
# what waits for one of these may wait long; a service that is silent may be stuck
WAITED_FOR = frozenset(name for name, (_, who) in _CLIENTS.items() if who != _SERVICE)
_WRAPPERS = frozenset(
    {"time", "timeout", "nohup", "nice", "ionice", "env", "sudo", "stdbuf", "setsid"}
    | {"exec", "command", "taskset", "weigh"}
)
_SHELLS = frozenset({"sh", "bash", "dash", "ksh", "zsh"})
_SEPARATORS = r"[;&|\n()]+"
# a client starts in up to half a second, and then waits
_STARTS: Seconds = 0.5
_BUSY = 0.1  # CPUs on average, beyond its start
# bytes; a client that holds more does work of its own
_CLIENT_MEMORY: Bytes = 128 * MIB
_BUSY_GPU = 20.0  # per cent


def outside_work(record: Record) -> str | None:
    """Return who did the work of a run in its place; None if the run did it itself."""
    usage = record.usage
    # ranks and nodes were measured where the work was done
    if usage is None or record.ranks or record.nodes:
        return None
    peak = None if usage.peak_memory is None else usage.peak_memory.value
    seen = usage.sign
    known = seen.name if seen is not None and seen.is_client else None
    figures = usage.wall_time, usage.cpu_time, peak
    if _used_little(*figures) and any(map(_was_busy_for_a_service, usage.gpus)):
        return f"the run {''.join(_SERVICE)}"
    return outside_work_of(record.command, *figures, known=known)


def _was_busy_for_a_service(gpu_usage: GpuUsage) -> bool:
    """Return whether only other processes of the user used a GPU, and kept it busy."""
    return (
        (gpu_usage.utilization_mean or 0) >= _BUSY_GPU
        and bool(gpu_usage.other_memory)
        and not gpu_usage.peak_memory
    )


def _used_little(
    wall_time: Seconds | None, cpu_time: Seconds | None, peak: Bytes | None
) -> bool:
    if wall_time is None or cpu_time is None:
        return False
    is_idle = cpu_time <= _STARTS + _BUSY * wall_time
    return is_idle and (peak or 0) <= _CLIENT_MEMORY


def outside_work_of(
    command: Sequence[str],
    wall_time: Seconds | None,
    cpu_time: Seconds | None,
    peak: Bytes | None,
    *,
    known: str | None = None,
) -> str | None:
    """Return who did the work, by the words of a command and what it used.

    *known* is the client that was its largest process, if one was seen.
    """
    if not _used_little(wall_time, cpu_time, peak):
        return None
    for words in _commands_of(command):
        name = words[0].rpartition("/")[2]
        if client_work(name, words) is not None:
            return f"{name} {''.join(_CLIENTS[name][1])}"
    if known is not None and known in _CLIENTS:
        return f"{known} {''.join(_CLIENTS[known][1])}"
    return None


def client_work(name: str, words: Sequence[str]) -> str | None:
    """Return who does the work of the program *name*, by the *words* of its command.

    None if it is no client, or does no more than to list or to look.
    """
    if name not in _CLIENTS:
        return None
    needed, who = _CLIENTS[name]
    # an ssh without a command opens a shell, in which weigh does not see what runs
    if name == "ssh" and len([w for w in words[1:] if w[:1] != "-"]) < 2:  # noqa: PLR2004
        return None  # a host and a command
    return who[0] if not needed or needed & set(words[1:]) else None


def _commands_of(command: Sequence[str]) -> Iterator[Sequence[str]]:
    """Yield the commands that a run started, as far as its words show them."""
    words = list(command)
    while words:
        name = words[0].rpartition("/")[2]
        # VARIABLE=value before the command
        if words[0].partition("=")[0].isidentifier() and "=" in words[0]:
            del words[0]
        elif name in _WRAPPERS:
            del words[0]
            # options of a wrapper, and the number that timeout or nice takes
            while words and (words[0][:1] == "-" or words[0][:1].isdigit()):
                del words[0]
            if name == "weigh":
                words = words[words.index("--") + 1 :] if "--" in words else []
        elif name in _SHELLS:
            for at, word in enumerate(words[:-1]):
                # -c, also at the end of joined options: bash -lc
                if word[:1] == "-" and word.endswith("c"):
                    yield from _commands_in(words[at + 1])
                    return
            return
        else:
            yield words
            return


def _commands_in(text: str) -> Iterator[Sequence[str]]:
    """Yield the commands of a line of shell, if it may have a client."""
    # shlex and re cost start-up time, and few lines have a client
    if not any(name in text for name in _CLIENTS):
        return
    import re  # noqa: PLC0415 - start-up time
    import shlex  # noqa: PLC0415 - as above

    for part in re.split(_SEPARATORS, text):
        # an open quote: the separator stood inside a text
        try:
            yield from _commands_of(shlex.split(part))
        except ValueError:
            continue
