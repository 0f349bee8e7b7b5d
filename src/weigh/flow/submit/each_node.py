"""``weigh submit --each-node``: run a command once on every node of a queue.

Each node has its own job, so a node that is busy or down delays no other.
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
from weigh.model.job import JobRequest
from weigh.model.plan import Plan
from weigh.schedulers.cluster_view import takes_jobs
from weigh.sweep.quoting import shell_line

_NAMED = 4


def nodes_of(
    request: JobRequest,
    scheduler: str,
    *,
    cwd: str,
    env: Mapping[str, str],
    ask: Ask = ask_scheduler,
) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Return the nodes of the queue that accept jobs, and notes on the others.

    Raises:
        SchedulerError: the scheduler does not answer.
        UsageError: no node of the queue accepts jobs.
    """
    live = live_limits(
        scheduler,
        Who(user=current_user()),
        env=env,
        site=config.load(cwd, env).cluster,
        ask=ask,
    )
    if live.limits is None or not live.nodes:
        raise SchedulerError(f"the nodes are not known: {live.trouble}")
    queues = {queue.name for queue in queues_of(request, live.limits)}
    ours = [node for node in live.nodes if queues & set(node.queues)]
    up = tuple(node.name for node in ours if takes_jobs(node))
    if not up:
        name = f"queue {request.queue}" if request.queue else "the default queue"
        raise UsageError(f"no node of {name} accepts jobs (weigh cluster)")
    return up, tuple(_left_out([node for node in ours if not takes_jobs(node)]))


def widened(
    plan: Plan, folder: str, command: Sequence[str], count: int, *, dry_run: bool
) -> Plan:
    """Return a plan of *count* tasks, all of them *command*, and write it.

    Raises:
        StoreError: the plan cannot be written.
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


def _left_out(down: Sequence[Node]) -> Iterator[str]:
    if down:
        names = ", ".join(node.name for node in down[:_NAMED])
        more = f" and {len(down) - _NAMED} more" if len(down) > _NAMED else ""
        yield f"nodes left out because they accept no jobs: {names}{more}"
