"""What to know before two runs are held against each other: what else is different."""

from collections.abc import Callable, Iterator, Sequence

from weigh.model.comparison import Difference, Side
from weigh.model.record import Record

_Value = int | float | str | None
_LETTERS = "ABCDEFGHIJKLMNOPQRSTUVWXYZ"
_COMMIT = 10  # letters of one


def letter(turn: int) -> str:
    """Name the sides: A to Z, then by number."""
    return _LETTERS[turn] if turn < len(_LETTERS) else f"#{turn + 1}"


def differences(groups: Sequence[Sequence[Record]]) -> Iterator[Difference]:
    """Give the parameters that are not the same on all sides, then the command.

    A command that differs in nothing but their values is not said again.
    """
    names = dict.fromkeys(n for group in groups for r in group for n in r.parameters)
    for name in names:
        values = tuple(_parameter(group, name) for group in groups)
        if len(set(values)) > 1:
            yield Difference(name, values)
    if _unexplained(groups):
        yield Difference("command", _changed_words(groups))


def notes(sides: Sequence[Side], groups: Sequence[Sequence[Record]]) -> Iterator[str]:
    """Say what makes a comparison doubtful, the gravest first."""
    yield from _failures(sides, groups)
    yield from _mixed(sides, groups)
    for what, tell in _SURROUNDINGS:
        yield from _unlike(what, [_told(group, tell) for group in groups])
    if _unexplained(groups):
        yield "different commands"
    for turn, side in enumerate(sides):
        if side.growing:
            yield (
                f"{letter(turn)}: memory was still rising at the end; "
                "the peak is of this length of run only"
            )
    if all(side.runs == 1 for side in sides):
        yield "one run each: no spread known; weigh run --repeat 3 would say it"


def _failures(
    sides: Sequence[Side], groups: Sequence[Sequence[Record]]
) -> Iterator[str]:
    for turn, (side, group) in enumerate(zip(sides, groups, strict=True)):
        if side.state == "RUNNING":
            yield f"{letter(turn)} is still running: its figures are of so far"
        elif side.state != "COMPLETED":
            bad = next(r for r in group if r.state == side.state)
            code = f", exit code {bad.exit_code}" if bad.exit_code else ""
            signal = f", signal {bad.signal}" if bad.signal is not None else ""
            yield (
                f"{letter(turn)} did not complete ({side.state}{code}{signal}): "
                "no measure of a whole run"
            )
        if side.failed:
            runs = "run" if side.failed == 1 else "runs"
            yield f"{letter(turn)}: {side.failed} {runs} failed and left out"


def _mixed(sides: Sequence[Side], groups: Sequence[Sequence[Record]]) -> Iterator[str]:
    for turn, (side, group) in enumerate(zip(sides, groups, strict=True)):
        commands = {record.command for record in group}
        if len(commands) > 1:
            yield (
                f"{letter(turn)}: {side.name} stands for {len(commands)} different "
                "commands: the spread is theirs"
            )


def _unlike(what: str, told: Sequence[str | None]) -> Iterator[str]:
    known = {one for one in told if one is not None}
    if len(known) > 1:
        each = (f"{letter(n)} {one or '?'}" for n, one in enumerate(told))
        yield f"different {what}: {', '.join(each)}"


def _told(group: Sequence[Record], tell: Callable[[Record], str | None]) -> str | None:
    told = dict.fromkeys(one for r in group if (one := tell(r)) is not None)
    return " and ".join(told) or None


def _host(record: Record) -> str | None:
    return record.host.name if record.host else None


def _gpus(record: Record) -> str | None:
    if record.usage is None:
        return None
    used = [gpu.name for gpu in record.usage.gpus if gpu.job_peak != 0]
    counts = {name: used.count(name) for name in used}
    words = (name if n == 1 else f"{n} x {name}" for name, n in counts.items())
    return " + ".join(words) or "none"


def _code(record: Record) -> str | None:
    commit = record.provenance.git_commit if record.provenance else None
    return commit[:_COMMIT] if commit else None


_SURROUNDINGS: tuple[tuple[str, Callable[[Record], str | None]], ...] = (
    ("hosts", _host),
    ("GPUs", _gpus),
    ("commits", _code),
)


def _parameter(group: Sequence[Record], name: str) -> _Value:
    values: dict[_Value, None] = dict.fromkeys(
        record.parameters.get(name) for record in group
    )
    if len(values) == 1:
        return next(iter(values))
    return ", ".join("none" if value is None else str(value) for value in values)


def _changed_words(groups: Sequence[Sequence[Record]]) -> tuple[str, ...]:
    """Give each side's words that the others lack; the whole command if none fit."""
    commands = [group[0].command for group in groups]
    if len({len(command) for command in commands}) > 1:
        return tuple(" ".join(command) for command in commands)
    columns = enumerate(zip(*commands, strict=True))
    places = [n for n, words in columns if len(set(words)) > 1]
    return tuple(" ".join(command[n] for n in places) for command in commands)


def _unexplained(groups: Sequence[Sequence[Record]]) -> bool:
    """Tell whether commands differ in more than the words that are parameters."""
    stripped = set()
    for group in groups:
        values = {str(value) for value in group[0].parameters.values()}
        stripped.add(tuple(_without(word, values) for word in group[0].command))
    return len(stripped) > 1


def _without(word: str, values: set[str]) -> str:
    """Blank out a parameter's value: the whole word, or what follows an equals sign."""
    name, equals, value = word.rpartition("=")
    if word in values:
        return "{}"
    return f"{name}=" if equals and value in values else word
