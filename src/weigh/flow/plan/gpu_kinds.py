"""``weigh plan --gpu auto``: the cluster's kinds of GPU, and where tasks end first.

Each kind that the tasks fit has a plan of its own. Its time counts only if it was
measured on that kind: how much faster one GPU is than another depends on the program.
"""

import re
from collections.abc import Callable, Iterator, Mapping
from itertools import islice

import msgspec
from msgspec.structs import replace

from weigh import gpu_models
from weigh.errors import SchedulerError, UsageError, WeighError
from weigh.flow.here import Here
from weigh.flow.request.request import configured_headroom
from weigh.flow.site.cluster import count_gpus, query_cluster
from weigh.flow.submit.job_request import SubmitOptions
from weigh.flow.submit.submit import predicted_start_of_plan
from weigh.model.cluster import UNTYPED, ClusterState, GpuCount
from weigh.model.job import ANY_QUEUE
from weigh.model.plan import KindForecast, Plan, TaskKind
from weigh.planning.make_plan import plan_for_target, tasks_too_big_message
from weigh.planning.needs import TaskNeeds
from weigh.planning.options import PlanOptions, PlanTarget, plan_targets
from weigh.planning.queue_order import AT_ONCE, end_of_turns
from weigh.schedulers import KINDS
from weigh.store.index import RecordHead
from weigh.sweep.quoting import bash_quoted, shell_line
from weigh.units import Bytes, Seconds

IsOnKind = Callable[[RecordHead], bool]


class KindPlan(msgspec.Struct, frozen=True):
    """The plan for one kind of GPU, and when its tasks would be done.

    ``words`` are the options of ``weigh submit`` by which the plan gets that kind,
    ``unmeasured`` the numbers of two tasks without a record there, if any lacks one.
    """

    plan: Plan
    forecast: KindForecast
    words: tuple[str, ...]
    unmeasured: tuple[int, ...]

    @property
    def rank(self) -> tuple[bool, bool, Seconds]:
        """Return the order of the kinds: what is not known comes last."""
        wait, makespan = self.forecast.wait, self.forecast.makespan
        return makespan is None, wait is None, (wait or 0.0) + (makespan or 0.0)


class ComparedKinds(msgspec.Struct, frozen=True):
    """The kinds that the tasks fit, the best first, and notes on these and others."""

    kinds: tuple[KindPlan, ...]
    notes: tuple[str, ...]


def compare_gpu_kinds(
    here: Here, options: PlanOptions, needs_on: Callable[[IsOnKind | None], TaskNeeds]
) -> ComparedKinds:
    """Plan for each kind of GPU that the scheduler names, and rank the plans.

    *needs_on* returns the tasks' needs by the records that a function accepts.

    Raises:
        UsageError: no kind is known, or the tasks fit none of them.
        SchedulerError: no scheduler with a cluster answers.
    """
    try:
        state = query_cluster(here.env)
    except WeighError as error:
        raise SchedulerError(
            f"--gpu auto: {error}; or name a GPU: --gpu V100-32GB"
        ) from error
    counts = count_gpus(node for node in state.nodes if node.takes_jobs)
    counts = tuple(count for count in counts if count.name != UNTYPED)
    if not counts:
        raise UsageError(
            "--gpu auto: the scheduler names no type of a GPU that takes jobs: name "
            "one (--gpu V100-32GB)"
        )
    any_needs = needs_on(None)
    if not any(kind.item.gpu_memory or kind.item.gpus for kind in any_needs.kinds):
        plan_targets("", any_needs, {})  # raises how to measure it
    planner = _KindPlanner(here, options, state, needs_on, any_needs)
    kinds, notes = list[KindPlan](), list[str]()
    for count in counts:
        try:
            kinds.append(planner.plan_on(count, notes))
        except UsageError as error:
            notes.append(f"{count.name} is left out: {error}")
    if not kinds:
        raise UsageError(
            "\n".join(("--gpu auto: no kind of GPU takes the tasks", *notes))
        )
    return ComparedKinds(tuple(sorted(kinds, key=lambda one: one.rank)), tuple(notes))


class _KindPlanner(msgspec.Struct, frozen=True):
    """Plans the tasks for one kind of GPU after the other."""

    here: Here
    options: PlanOptions
    state: ClusterState
    needs_on: Callable[[IsOnKind | None], TaskNeeds]
    any_needs: TaskNeeds
    """By the records of all kinds."""

    def plan_on(self, count: GpuCount, notes: list[str]) -> KindPlan:
        """Return the plan on this kind; add to *notes* what is assumed of it.

        Raises:
            UsageError: the kind is not known, or the cluster does not take the plan.
        """
        target = self._target_of_kind(count.name, notes)
        needs, unmeasured = self._needs_on_kind(count.name)
        plan = self._plan_that_nodes_hold(count.name, needs, target)
        if plan.left_out:
            states_cpus = self.options.cpus is not None
            raise UsageError(tasks_too_big_message(plan, states_cpus=states_cpus))
        start, words = self._start_of_plan(plan, f"{count.name}:{plan.request.gpus}")
        wait = 0.0 if count.free >= plan.request.gpus else None
        if start is not None:
            wait = max(0.0, start - self.here.clock())
        # as many at a time as have room now: others may take what gets free
        at_once = min(AT_ONCE, max(1, count.free // plan.request.gpus))
        forecast = KindForecast(
            gpu=count.name,
            total=count.total,
            free=count.free,
            wait=wait,
            makespan=makespan_of_plan(plan, at_once),
        )
        return KindPlan(plan, forecast, words, unmeasured)

    def _target_of_kind(self, kind: str, notes: list[str]) -> PlanTarget:
        try:
            target = plan_targets(kind, self.any_needs, self.here.settings.gpus)[0]
        except UsageError as error:
            size = f'[gpus] {kind} = "24GiB" in weigh.toml'
            raise UsageError(f"its memory is not known ({size})") from error
        if target.note is None or target.gpu is None:
            return target
        size = f'[gpus] {kind} = "SIZE" in weigh.toml'
        notes.append(f"{kind} is read as {target.gpu.name} ({size} if it is another)")
        return replace(target, note=None)

    def _needs_on_kind(self, kind: str) -> tuple[TaskNeeds, tuple[int, ...]]:
        """Return the needs as measured there, and two tasks without a record there.

        Where tasks lack one, the needs are those of all kinds without the time. What
        tasks take that use no GPU is the same everywhere.
        """
        sites = self.here.settings.gpus
        without_gpu = {
            name
            for one in self.any_needs.kinds
            if not (one.item.gpu_memory or one.item.gpus)
            for name in one.records
        }
        needs = self.needs_on(
            lambda head: head.id in without_gpu or _is_run_on_kind(head, kind, sites)
        )
        places = enumerate(needs.places, start=1)
        unmeasured = (n for n, place in places if not needs.kinds[place].records)
        two = tuple(islice(unmeasured, 2))
        if not two:
            return needs, two
        kinds = self.any_needs.kinds
        if self.options.time is None:
            kinds = tuple(map(_without_time, kinds))
        return replace(self.any_needs, kinds=kinds), two

    def _plan_that_nodes_hold(
        self, kind: str, needs: TaskNeeds, target: PlanTarget
    ) -> Plan:
        """Plan with a GPU's share of the smallest node; of all of it if it takes that.

        Raises:
            UsageError: a task uses more GPUs than a node has.
        """
        options, headroom = self.options, configured_headroom(self.here.settings)
        if any(one.used.time is None for one in needs.kinds):
            options = replace(options, hours=None)
        if options.node_cpus or options.node_gpus or options.node_memory:
            return plan_for_target(options, needs, target, headroom)
        nodes = (node for node in self.state.nodes if node.takes_jobs)
        nodes_of_kind = [node for node in nodes if node.gpu_count(kind)]
        memory = min((one.memory for one in nodes_of_kind if one.memory), default=None)
        on_node = replace(
            options,
            node_cpus=min(
                (one.cpus for one in nodes_of_kind if one.cpus), default=None
            ),
            node_memory=None if memory is None else f"{memory}B",
            node_gpus=max(one.gpu_count() for one in nodes_of_kind),
        )
        plan = plan_for_target(on_node, needs, target, headroom)
        if not plan.left_out:
            return plan
        whole = replace(on_node, node_gpus=options.gpus_per_task)
        return plan_for_target(whole, needs, target, headroom)

    def _start_of_plan(
        self, plan: Plan, gpus: str
    ) -> tuple[Seconds | None, tuple[str, ...]]:
        """Return the predicted start, and the options by which the job gets *gpus*.

        Raises:
            UsageError: it would be refused, or never start.
        """
        traits = KINDS[self.state.scheduler].traits
        options = SubmitOptions(scheduler=self.state.scheduler, gpus=gpus, heal="no")
        # others look up their own name of a GPU that was planned for
        words = ("--gpus", gpus) if traits.names_resources else ()
        try:
            return predicted_start_of_plan(self.here, options, plan), words
        except UsageError:
            if not traits.queues:
                raise
        # the queue of a job that names none has not each kind of GPU
        options = replace(options, queue=ANY_QUEUE)
        start = predicted_start_of_plan(self.here, options, plan)
        return start, (*words, "--queue", ANY_QUEUE)


def _is_run_on_kind(head: RecordHead, kind: str, sites: Mapping[str, Bytes]) -> bool:
    """Return whether a run held memory of a GPU of this kind."""
    return head.usage is not None and any(
        (gpu.process_peak_memory or gpu.peak_memory)
        and gpu_models.is_gpu_of_kind(gpu.name, gpu.memory_total, kind, sites)
        for gpu in head.usage.gpus
    )


def _without_time(kind: TaskKind) -> TaskKind:
    predictions = (one for one in kind.predictions if one.quantity != "time")
    return replace(
        kind,
        item=replace(kind.item, time=None),
        used=replace(kind.used, time=None),
        predictions=tuple(predictions),
    )


def makespan_of_plan(plan: Plan, at_once: int) -> Seconds | None:
    """Return the time of all tasks with so many elements at once; None if not known."""
    known = [time for kind in plan.kinds if (time := kind.used.time) is not None]
    if len(known) < len(plan.kinds):
        return None
    if (queue := plan.queue) is not None and queue.expected is not None:
        times = sorted((known[number] for number in queue.kinds), reverse=True)
        # as planned for all elements, but with the turns that fewer of them take
        all_at_once = end_of_turns(times, len(plan.elements) * queue.slots) or 1.0
        return queue.expected * end_of_turns(times, at_once * queue.slots) / all_at_once
    ends = list[Seconds]()
    for element in plan.elements:
        alone = max(known[number] for number in element.kinds)
        limit = max(plan.kinds[number].item.time or 0.0 for number in element.kinds)
        # an element's time is a limit: what sharing adds to it, without its headroom
        ends.append(alone * (element.time or 0.0) / (limit or 1.0))
    return end_of_turns(ends, at_once)


def lines_to_measure(
    options: PlanOptions, compared: ComparedKinds, line_of: Callable[[int], int]
) -> Iterator[str]:
    """Yield what to type to measure the time on the kinds that have none.

    *line_of* returns the line of the task file with the task of a number.
    """
    typed = {
        "--gpu-memory": options.gpu_memory,
        "--memory": options.memory,
        "--cpus": options.cpus,
        "--gpus": options.gpus_per_task,
    }
    words = [str(word) for pair in typed.items() if pair[1] for word in pair]
    # alone on its GPU: what sharing costs is added by the plan
    words += [] if options.gpus_per_task else ["--per-gpu", "1"]
    task_file = "TASKS" if options.task_file == "-" else options.task_file
    for one in compared.kinds:
        if one.forecast.makespan is not None or not one.unmeasured:
            continue
        kind = one.forecast.gpu
        name = f"{one.plan.name}-" + re.sub(r"[^\w.-]", "_", kind)
        yield f"time not measured on {kind}: run two tasks there"
        two = shell_line(("weigh", "plan", "-", "--gpu", kind, *words, "--name", name))
        lines = ";".join(f"{line_of(task)}p" for task in one.unmeasured)
        yield f"  sed -n '{lines}' {bash_quoted(task_file)} | {two}"
        yield f"  {shell_line(('weigh', 'submit', f'plan/{name}', *one.words))}"
