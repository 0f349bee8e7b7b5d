# ruff: noqa: E501 - lines as the tools print them
"""What training frameworks and tools print, line by line, with the time of each line.

The formats are those of the tools' own sources and logs. A tool that prints one kind of
line is a row of frameworks.txt.
"""

import random
from collections.abc import Callable, Iterator
from pathlib import Path

Printed = Iterator[tuple[float, str]]
Framework = Callable[[], Printed]


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


def mmengine() -> Printed:
    for clock, epoch, step, left in nested(5, 40, 0.5, after=3):
        yield (
            clock,
            (
                f"11/26 10:00:00 - mmengine - INFO - Epoch(train)  [{epoch + 1}][{50 * (step + 1):4}/2000]  "
                f"lr: 2.0000e-02  eta: {_clock(left, days=True)}  time: 0.4820  data_time: 0.0131  "
                f"memory: 3915  loss: {1 / (step + 1):.4f}\n"
            ),
        )
        if step == 39:
            for batch in range(1, 6):
                yield (
                    clock + 0.5 * batch,
                    (
                        f"11/26 10:00:00 - mmengine - INFO - Epoch(val)  [{epoch + 1}][{batch * 50:3}/250]    "
                        f"eta: {_clock(0.5 * (5 - batch))}  time: 0.0321  data_time: 0.0023  memory: 800\n"
                    ),
                )


def timm() -> Printed:
    for clock, epoch, step, _ in nested(5, 40, 0.5, after=2):
        done = 20 * step
        yield (
            clock,
            (
                f"Train: {epoch} [{done:>4d}/{800} ({100 * step // 39:>3.0f}%)]  Loss: {2 / (step + 1):#.3g} "
                f"(6.93)  Time: 0.512s,  500.10/s  (0.530s,  482.77/s)  LR: 1.000e-05  Data: 0.010 (0.028)\n"
            ),
        )
        if step == 39:
            for batch in range(0, 11, 5):
                yield (
                    clock + 0.1 * (batch + 1),
                    (
                        f"Test: [{batch:>4d}/10]  Time: 0.312 (0.312)  Loss:   6.9 (  6.9)  Acc@1:  0.1 (  0.1)\n"
                    ),
                )


def torchvision() -> Printed:
    for clock, epoch, step, _ in nested(6, 40, 0.5, after=2):
        yield (
            clock,
            (
                f"Epoch: [{epoch}]  [{10 * step:4d}/400]  eta: {_clock((40 - step) * 0.5)}  lr: 0.01  "
                f"img/s: 312.3  loss: 0.61 (0.64)  acc1: 81.2 (80.3)  acc5: 93.7 (94.0)  time: 0.05  data: 0.001  max mem: 2345\n"
            ),
        )
        if step == 39:
            yield clock + 0.1, f"Epoch: [{epoch}] Total time: 0:00:20\n"
            for batch in range(5):
                yield (
                    clock + 0.3 * (batch + 1),
                    (
                        f"Test:   [{batch * 100:3d}/500]  eta: {_clock(0.3 * (5 - batch))}  loss: 0.5 (0.5)  acc1: 80.0 (80.0)  time: 0.1  data: 0.0  max mem: 2345\n"
                    ),
                )


def yolo() -> Printed:
    for clock, epoch, step, _ in nested(5, 30, 0.5, after=3):
        head = "      Epoch    GPU_mem   box_loss   cls_loss   dfl_loss  Instances       Size\n"
        label = (
            f"{epoch + 1:>11}/5".rjust(11)
            + f"      2.36G      1.2{step % 10}      3.1      1.3        {step + 3}        640: "
        )
        yield clock, ("\n" + head if not step else "") + _tqdm(label, step + 1, 30)
        if step == 29:
            label = "                 Class     Images  Instances      Box(P          R      mAP50  mAP50-95): "
            yield clock + 0.3, "\n"
            for batch in range(1, 5):
                yield clock + 0.3 + 0.5 * batch, _tqdm(label, batch, 4)


def monai() -> Printed:
    for clock, epoch, step, _ in nested(5, 40, 0.5, after=2):
        if not step:
            yield clock - 0.4, f"----------\nepoch {epoch + 1}/5\n"
        yield clock, f"{step + 1}/40, train_loss: {1 / (step + 1):.4f}\n"
        if step == 39:
            yield clock + 0.1, f"epoch {epoch + 1} average loss: 0.4321\n"


def monai_unknown() -> Printed:
    """The same script with a line of its own in place of the heading."""
    for clock, epoch, step, _ in nested(5, 40, 0.5, after=2):
        if not step:
            yield clock - 0.4, f"----------\nepoch {epoch + 1}\n"
        yield clock, f"{step + 1}/40, train_loss: {1 / (step + 1):.4f}\n"


def keras() -> Printed:
    for clock, epoch, step, _ in nested(5, 40, 0.5, after=2):
        if not step:
            yield clock - 0.4, f"\nEpoch {epoch + 1}/5\n"
        yield (
            clock,
            f"\r{step + 1}/40 {'━' * 20} {(40 - step) // 2}s 500ms/step - loss: 0.5",
        )


def lightning() -> Printed:
    for clock, epoch, step, _ in nested(5, 40, 0.5, after=2):
        yield (
            clock,
            _tqdm(f"Epoch {epoch}: ", step + 1, 40) + ("\n" if step == 39 else ""),
        )
        if step == 39:
            for batch in range(1, 5):
                yield clock + 0.3 * batch, _tqdm("Validation DataLoader 0: ", batch, 4)


def huggingface() -> Printed:
    yield (
        0.1,
        "***** Running training *****\n  Num examples = 4,800\n  Num Epochs = 3\n  Total optimization steps = 120\n",
    )
    for clock, epoch, step, _ in nested(3, 40, 0.5, after=0.5):
        n = 40 * epoch + step + 1
        yield clock, _tqdm("", n, 120)
        if n % 10 == 0:
            yield (
                clock + 0.05,
                f"\n{{'loss': 1.9, 'grad_norm': 2.1, 'learning_rate': 4e-05, 'epoch': {n / 40:.2f}}}\n",
            )
        if step == 39:
            for batch in range(1, 9):
                yield clock + 0.05 * batch, "\n" + _tqdm("", batch, 8) + "\x1b[A"


def spacy() -> Printed:
    yield (
        0.2,
        "E    #       LOSS TOK2VEC  LOSS TAGGER  TAG_ACC  SCORE \n---  ------  ------------  -----------  -------  ------\n",
    )
    for clock, epoch, step, _ in nested(4, 10, 2.0):
        yield (
            clock,
            f"{epoch:3}  {200 * (10 * epoch + step):6}          1.23       100.12    {50 + step:.2f}    0.{50 + step}\n",
        )


def nextflow() -> Printed:
    for clock, _, step, _ in nested(1, 60, 1.0):
        n = step + 1
        ahead = "\x1b[2A" if step else ""
        yield (
            clock,
            (
                f"{ahead}[{n:02x}/a1b2c3] FASTQC (s{n}) | {min(20, n)} of 20{' ✔' if n >= 20 else ''}\n"
                f"[{n:02x}/d4e5f6] ALIGN (s{n})  | {max(0, n - 20)} of {min(20, n)}\n"
            ),
        )


def ffmpeg() -> Printed:
    yield 0.1, "  Duration: 00:10:00.00, start: 0.000000, bitrate: 5000 kb/s\n"
    for clock, _, step, _ in nested(1, 100, 0.5):
        n = step + 1
        yield (
            clock,
            f"\rframe={150 * n:5d} fps=300 q=28.0 size=  {100 * n}KiB time=00:{6 * n // 60:02}:{6 * n % 60:02}.00 bitrate=1000.0kbits/s speed=12x    ",
        )


def allennlp() -> Printed:
    for clock, epoch, step, _ in nested(5, 40, 0.5, after=1):
        if not step:
            yield (
                clock - 0.4,
                f"2026-11-26 10:00:00,000 - INFO - allennlp.training.trainer - Epoch {epoch}/4\n",
            )
        yield (
            clock,
            _tqdm(
                f"accuracy: 0.9{step % 10}, batch_loss: 0.1, loss: 0.3 ||: ",
                step + 1,
                40,
            )
            + ("\n" if step == 39 else ""),
        )


def segmentation() -> Printed:
    """Bars of segmentation_models.pytorch, under a heading of its examples."""
    for clock, epoch, step, _ in nested(5, 40, 0.5, after=4):
        if not step:
            yield clock - 0.4, f"\nEpoch: {epoch}\n"
        yield clock, _tqdm("train: ", step + 1, 40)
        if step == 39:
            for batch in range(1, 9):
                yield clock + 0.4 * batch, _tqdm("valid: ", batch, 8)


def yolo_bars() -> Printed:
    """The bars of Ultralytics since 8.3.200."""
    for clock, epoch, step, _ in nested(5, 30, 0.5, after=3):
        bar = f"{100 * (step + 1) // 30}% {'━' * (12 * (step + 1) // 30)}{'─' * (12 - 12 * (step + 1) // 30)}"
        yield (
            clock,
            f"\r\x1b[K{epoch + 1:>11}/5      2.36G      1.205      3.1      1.3        16        640: {bar} {step + 1}/30 2.0it/s 3.2s<9.1s",
        )
        if step == 29:
            yield clock + 0.1, "\n"


def timm_scheduled() -> Printed:
    yield 0.1, "Scheduled epochs: 5. LR stepped per epoch.\n"
    yield from timm()


def torchvision_options() -> Printed:
    yield (
        0.1,
        "Namespace(data_path='/data', model='resnet18', batch_size=32, epochs=6, workers=16, lr=0.1, start_epoch=0)\n",
    )
    yield from torchvision()


def _framework_of_row(row: str) -> tuple[str, Framework]:
    name, shape, expression = row.split("\t")
    epochs, steps, *seconds = shape.split()
    code = compile(expression, name, "eval")

    def printed() -> Printed:
        rounds = nested(int(epochs), int(steps), *map(float, seconds))
        for clock, epoch, step, left in rounds:
            fields = {"clock": clock, "epoch": epoch, "step": step, "left": left}
            yield clock, eval(code, globals(), fields)

    return name, printed


# a name, the arguments of `nested`, and the line as an expression
_ROWS = Path(__file__).with_name("frameworks.txt").read_text().splitlines()
FRAMEWORKS: dict[str, Framework] = {
    **{
        name: made
        for name, made in list(globals().items())
        if getattr(made, "__module__", "") == __name__
        and made.__annotations__ == {"return": Printed}
    },
    **dict(_framework_of_row(row) for row in _ROWS if row[0] != "#"),
}
