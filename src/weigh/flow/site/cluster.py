"""``weigh cluster``: what a cluster has, what is free, and who uses the rest."""

import itertools
import os
import re
import time
from collections.abc import Mapping

import msgspec

from weigh.errors import FormatError
from weigh.flow.site.ask import Ask, ask_scheduler, query
from weigh.flow.site.schedulers import installed_scheduler
from weigh.model.cluster import Cluster, Start
from weigh.model.job import JobRequest
from weigh.model.record import Complexes
from weigh.schedulers import KINDS
from weigh.schedulers.cluster_view import (
    closed_nodes,
    count_gpus,
    count_queues,
    count_users,
    merge_elements,
)
from weigh.schedulers.command import query_environment
from weigh.schedulers.protocol import Reply

_WORD = re.compile(r"[A-Za-z][\w.-]*", re.ASCII)


def in_site_words(
    wanted: JobRequest, kind: str, site: Mapping[str, object]
) -> JobRequest:
    """Return *wanted* with the resource names of the site file's ``[cluster]``.

    Raises:
        FormatError: a name is invalid; the message names its key.
    """
    if kind not in site or kind not in KINDS or not KINDS[kind].traits.names_resources:
        return wanted
    complexes = read_complexes(kind, site[kind])
    return msgspec.structs.replace(wanted, complexes=complexes)


def read_complexes(kind: str, table: object) -> Complexes:
    """Read the table of a scheduler's resource names; missing ones are the usual.

    Raises:
        FormatError: a key or a value is invalid; the message names it.
    """
    try:
        words = msgspec.convert(table, Complexes)
    except msgspec.ValidationError as error:
        known = ", ".join(Complexes.__struct_fields__)
        raise FormatError(f"cluster.{kind}: {error} (it has {known})") from error
    for name in Complexes.__struct_fields__:
        word = getattr(words, name)
        if not _WORD.fullmatch(word):
            raise FormatError(f"cluster.{kind}.{name}: not a resource name: {word!r}")
    return words


def find_complexes(env: Mapping[str, str], ask: Ask, scheduler: str) -> dict[str, str]:
    """Query the cluster for its resource names; those that it lacks are left out."""
    return KINDS[scheduler].resource_names(query(env, ask))


class Shape(msgspec.Struct, frozen=True, kw_only=True):
    """The job whose start is predicted; no *queues* means every open one."""

    queues: tuple[str, ...] = ()
    cpus: int = 1
    gpu: str | None = None
    time_limit: int | None = None


def cluster(
    env: Mapping[str, str],
    *,
    scheduler: str | None = None,
    shape: Shape | None = None,
    ask: Ask = ask_scheduler,
) -> Cluster:
    """Query the scheduler of this machine, or *scheduler*, with each command once.

    With *shape*, also predict when such a job would start.

    Raises:
        WeighError: there is no scheduler, or it does not answer.
    """
    kind = scheduler or installed_scheduler(env)
    env = asking_environment(env)
    answers = KINDS[kind].read_cluster(query(env, ask), env)
    nodes = closed_nodes(answers.nodes, answers.queues)
    user = _user()
    counted = Cluster(
        scheduler=kind,
        name=answers.name,
        version=answers.version,
        user=user,
        time=time.strftime("%Y-%m-%dT%H:%M:%S"),
        nodes=nodes,
        gpus=count_gpus(nodes),
        queues=count_queues(
            answers.queues, nodes, answers.jobs, gpus_per_user=answers.gpus_per_user
        ),
        users=count_users(answers.jobs),
        jobs=merge_elements(job for job in answers.jobs if job.user == user),
        notes=answers.notes,
    )
    counted = _with_hidden(counted)
    if shape is None:
        return counted
    return msgspec.structs.replace(
        counted, starts=tuple(_starts(counted, shape, env, ask))
    )


def asking_environment(env: Mapping[str, str]) -> dict[str, str]:
    """Return *env* without the variables that would change the answers."""
    defaults = (kind.variables.defaults for kind in KINDS.values())
    return query_environment(env, tuple(itertools.chain.from_iterable(defaults)))


def _starts(
    seen: Cluster, shape: Shape, env: Mapping[str, str], ask: Ask
) -> list[Start]:
    """Query when the job would start, for each queue."""
    names = shape.queues or tuple(
        queue.limits.name for queue in seen.queues if queue.limits.open
    )
    kind = KINDS[seen.scheduler]
    argvs = [
        kind.start_argv(name, cpus=shape.cpus, gpu=shape.gpu, time=shape.time_limit)
        for name in names
    ]
    replies = query(env, ask)(argvs)
    return [
        _start(name, reply, *kind.parse_start(reply.stderr + reply.stdout))
        for name, reply in zip(names, replies, strict=True)
    ]


def _start(queue: str, reply: Reply, start: str | None, trouble: str | None) -> Start:
    if start is None and trouble is None:
        trouble = reply.complaint()
    return Start(queue=queue, start=start, trouble=trouble)


def _with_hidden(seen: Cluster) -> Cluster:
    """Add a note if the site hides the jobs of other users."""
    in_use = sum(count.used for count in seen.gpus)
    known = sum(user.gpus for user in seen.users)
    others = any(user.user != seen.user for user in seen.users)
    if in_use <= known or others or seen.notes:
        return seen
    note = (
        "the jobs of other users are hidden here; their usage is only visible per node"
    )
    return msgspec.structs.replace(seen, notes=(*seen.notes, note))


def _user() -> str:
    try:
        import pwd  # noqa: PLC0415 - not on Windows
    except ImportError:
        return os.environ.get("USERNAME", "")
    try:
        return pwd.getpwuid(os.getuid()).pw_name
    except KeyError:
        return str(os.getuid())
