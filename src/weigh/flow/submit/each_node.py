"""``weigh submit --each-node``: a command once on every node of a queue.

Each node gets a job of its own: one that is busy or down keeps no other waiting.
"""

from collections.abc import Iterator, Mapping, Sequence

import msgspec

from weigh import config
from weigh.errors import SchedulerError, UsageError
from weigh.flow.plan import directory as plan_directory
from weigh.flow.site.ask import Ask, ask_scheduler
from weigh.flow.site.live_limits import Who, live_limits
from weigh.flow.site.schedulers import current_user
from weigh.flow.submit.checks import queues_of
from weigh.model.cluster import Node
from weigh.model.job import JobScript, Wanted
from weigh.model.plan import Plan
from weigh.schedulers.cluster_view import takes_jobs
from weigh.schedulers.slurm import commands as slurm_commands
from weigh.sweep.quoting import shell_line

REASON = "a job for each node"
_NAMED = 4


def nodes_of(
    wanted: Wanted,
    scheduler: str,
    *,
    cwd: str,
    env: Mapping[str, str],
    ask: Ask = ask_scheduler,
) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Name the nodes of the queue that take jobs; note those that do not.

    Raises:
        SchedulerError: the scheduler does not answer.
        UsageError: the queue has no node that takes jobs.
    """
    live = live_limits(
        scheduler,
        Who(user=current_user()),
        env=env,
        site=config.load(cwd, env).cluster,
        ask=ask,
    )
    if live.limits is None or not live.nodes:
        raise SchedulerError(f"which nodes there are is not told: {live.trouble}")
    queues = {queue.name for queue in queues_of(wanted, live.limits)}
    ours = [node for node in live.nodes if queues & set(node.queues)]
    up = tuple(node.name for node in ours if takes_jobs(node))
    if not up:
        name = wanted.queue or "the default one"
        raise UsageError(f"no node of queue {name} takes jobs (weigh cluster)")
    return up, tuple(_left_out([node for node in ours if not takes_jobs(node)]))


def widened(
    plan: Plan, folder: str, command: Sequence[str], count: int, *, dry_run: bool
) -> Plan:
    """Make of a plan with one task one with *count*, all of them *command*.

    Raises:
        StoreError: it cannot be written.
    """
    element = plan.elements[0]
    made = msgspec.structs.replace(
        plan,
        tasks=count,
        kinds=tuple(msgspec.structs.replace(one, tasks=count) for one in plan.kinds),
        elements=tuple(
            msgspec.structs.replace(
                element, file=f"tasks_{number}.txt", tasks=(number + 1,)
            )
            for number in range(count)
        ),
        fewest=count,
    )
    if not dry_run:
        line = shell_line(command).encode("utf-8", "surrogateescape")
        plan_directory.write(folder, made, lambda _: line)
    return made


def parts(
    script: JobScript, nodes: Sequence[str], scheduler: str
) -> Iterator[JobScript]:
    """Return a script for each node."""
    for number, node in enumerate(nodes):
        flag = (
            ("nodelist", node)
            if scheduler == slurm_commands.NAME
            else ("l", f"h={node}")
        )
        extra = (*script.wanted.extra, flag)
        wanted = msgspec.structs.replace(script.wanted, extra=extra, throttle=None)
        yield msgspec.structs.replace(script, first=number, elements=1, wanted=wanted)


def _left_out(down: Sequence[Node]) -> Iterator[str]:
    if down:
        names = ", ".join(node.name for node in down[:_NAMED])
        more = f" and {len(down) - _NAMED} more" if len(down) > _NAMED else ""
        yield f"left out, for they take no jobs: {names}{more}"
