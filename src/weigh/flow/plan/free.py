"""How many cards of each kind are free now, where a scheduler tells it soon."""

import shutil
from collections.abc import Mapping, Sequence

import msgspec

from weigh import catalogue
from weigh.errors import UsageError, WeighError
from weigh.flow.site.ask import Ask, Reply, ask_scheduler, in_time
from weigh.flow.site.cluster import cluster
from weigh.model.cluster import Cluster
from weigh.model.plan import Plan
from weigh.units import Seconds

_TELLERS = ("sinfo", "qhost")
_PATIENCE: Seconds = 3.0  # for a figure that a plan can do without


def with_free_cards(
    plans: Sequence[Plan], env: Mapping[str, str], *, ask: Ask = ask_scheduler
) -> tuple[Plan, ...]:
    """Add to each plan the cards free now; as they are where nobody tells."""
    path = env.get("PATH", "")
    if not any(shutil.which(name, path=path) for name in _TELLERS):
        return tuple(plans)
    seen = in_time([lambda: _seen(env, ask)], patience=2 * _PATIENCE)[0]
    if seen is None:
        return tuple(plans)
    return tuple(
        msgspec.structs.replace(plan, free_now=free_of(plan, seen)) for plan in plans
    )


def free_of(plan: Plan, seen: Cluster) -> int | None:
    """Count the cards of a plan's kind that are free; None where it is not known.

    A site's ``v100`` may be of either size: it counts for both.
    """
    if plan.card is None:
        return None
    counts = [
        count.free
        for count in seen.gpus
        if _is_called(plan.card.name, plan.ask.gpu, count.name)
    ]
    return sum(counts) if counts else None


def _is_called(card: str, word: str | None, name: str) -> bool:
    """Tell whether the site's *name* may be the card."""
    if word is not None and word.lower() == name.lower():
        return True
    try:
        return any(model.name == card for model in catalogue.called(name))
    except UsageError:  # a name of the site's own
        return False


def _seen(env: Mapping[str, str], ask: Ask) -> Cluster | None:
    def ask_briefly(
        argv: Sequence[str],
        *,
        env: Mapping[str, str],
        cwd: str | None = None,
        patience: Seconds = _PATIENCE,
    ) -> Reply:
        return ask(argv, env=env, cwd=cwd, patience=min(patience, _PATIENCE))

    try:
        return cluster(env, ask=ask_briefly)
    except WeighError:
        return None
