# ruff: noqa: E501 - lines as the tools print them
"""What training frameworks and tools print, line by line, with the time of each line.

The formats are those of the tools' own sources and logs: a row of frameworks.txt each.
"""

import random
from collections.abc import Callable, Iterator
from itertools import chain
from pathlib import Path

Printed = Iterator[tuple[float, str]]


def _clock(seconds: float, *, days: bool = False) -> str:
    """Return ``H:MM:SS``, or ``1 day, H:MM:SS`` where that is so long."""
    whole = int(seconds)
    text = f"{whole // 3600 % 24 if days else whole // 3600}:{whole // 60 % 60:02}:{whole % 60:02}"
    return (
        f"{whole // 86400} day{'s' * (whole >= 172800)}, {text}"
        if days and whole >= 86400
        else text
    )


def _short(seconds: float) -> str:
    whole = int(seconds)
    return f"{whole // 60:02}:{whole % 60:02}"


def nested(
    epochs: int, steps: int, every: float, after: float = 0.0
) -> Iterator[tuple[float, int, int, float]]:
    """Yield the time, epoch and step, both from 0, and the seconds left of the run."""
    dice, clock = random.Random(7), 0.0
    whole = epochs * (steps * every + after)
    for epoch in range(epochs):
        for step in range(steps):
            clock += every * dice.lognormvariate(0, 0.05)
            yield clock, epoch, step, max(0.0, whole - clock)
        clock += after


def _tqdm(label: str, done: int, total: int, every: float = 0.5) -> str:
    bar = "█" * (10 * done // total)
    times = f"{_short(done * every)}<{_short((total - done) * every)}"
    return f"\r{label}{100 * done // total:3d}%|{bar:<10}| {done}/{total} [{times},  {1 / every:.2f}it/s]"


def _framework_of_row(row: str) -> tuple[str, Callable[[], Printed]]:
    name, shape, *texts = row.split("\t")
    epochs, steps, *seconds = shape.split()
    code = compile("\t".join(texts), name, "eval")

    def printed() -> Printed:
        last = int(steps) - 1
        rounds = nested(int(epochs), int(steps), *map(float, seconds))
        for clock, epoch, step, left in rounds:
            fields = {"clock": clock, "epoch": epoch, "step": step, "left": left}
            shown = eval(code, globals() | fields | {"last": step == last})
            # one text, or several each so many seconds before or after the step
            for delay, text in [(0.0, shown)] if isinstance(shown, str) else shown:
                yield clock + delay, text

    return name, printed


def _scheduled(name: str, line: str) -> Callable[[], Printed]:
    """Return what it prints after a *line* that states the number of epochs."""
    return lambda: chain([(0.1, line)], FRAMEWORKS[name]())


# a name, the arguments of `nested`, and the line, or several, as an expression
_ROWS = Path(__file__).with_name("frameworks.txt").read_text().splitlines()
FRAMEWORKS = dict(_framework_of_row(row) for row in _ROWS if row[0] != "#")
FRAMEWORKS["timm_scheduled"] = _scheduled(
    "timm", "Scheduled epochs: 5. LR stepped per epoch.\n"
)
FRAMEWORKS["torchvision_options"] = _scheduled(
    "torchvision", "Namespace(model='resnet18', batch_size=32, epochs=6, lr=0.1)\n"
)
