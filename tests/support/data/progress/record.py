"""Records what real tools print as they run, with the time of every piece.

``python record.py DIRECTORY [NAME ...]`` plays each tool in a terminal of its own (or
into a pipe, where it is named so) and writes ``NAME.jsonl.gz``: lines of ``[seconds
since the run began, text]``, the text one character a byte. ``record.py --play NAME``
is one program. Needs tqdm, rich, keras, torch, transformers, accelerate and lightning.

Step times are drawn, the same every time: a spread of 10 % around a mean, of 5 % where
a step takes a second. ``cmake`` is written in the format of the tool, the rest is real.

``tools/`` (74 tools) was recorded with ``record.py DIRECTORY --command NAME
'COMMAND'``, on a busy machine: downloads from a server on loopback whose rate varies
(wget, curl, axel, aria2c), ``rsync --bwlimit``, and real work of 4 to 160 s, of which
some is uneven on purpose. The reader was developed on it. ``kept_back/`` holds 24 other
tools, recorded the same way and read only once the reader was committed; what they
print had been seen. It has been used for repairs since. Left out for want of a figure
of how far they are: joblib, scikit-learn's grid search, rav1e and duplicity. Folder,
host and kernel names are replaced.
"""

import fcntl
import gzip
import json
import os
import pty
import random
import re
import select
import struct
import subprocess
import sys
import termios
import time
from collections.abc import Callable, Iterator
from importlib import import_module
from pathlib import Path
from typing import Any

SPREAD = 0.1
ROWS, COLUMNS = 40, 100
FOLDERS = re.compile(rb"(?:/[\w.-]+)+/(?=[\w.-]+\.py)")  # of this machine only
IN_A_PIPE = {"lines_pipe", "tqdm_pipe", "cmake"}

Step = Callable[[int], float]


def steady(mean: float, spread: float = SPREAD) -> Step:
    """Draw a time for each step around *mean* seconds."""
    dice = random.Random(sys.argv[-1])
    return lambda _: mean * dice.lognormvariate(0, spread)


def warming(mean: float, steps: int, factor: float) -> Step:
    """Let the first *steps* take *factor* times as long."""
    draw = steady(mean)
    return lambda n: draw(n) * (factor if n < steps else 1)


def stepped(mean: float, at: int, factor: float) -> Step:
    """Let each step from *at* on take *factor* times as long."""
    draw = steady(mean)
    return lambda n: draw(n) * (factor if n >= at else 1)


def _plain(draw: Step, steps: int, **options: Any) -> None:
    tqdm = import_module("tqdm").tqdm

    for step in tqdm(range(steps), **options):
        time.sleep(draw(step))


def tqdm_bar() -> None:
    """One bar."""
    _plain(steady(0.08), 400)


def tqdm_pipe() -> None:
    """One bar into a pipe, with a description."""
    _plain(steady(0.08), 400, desc="embedding")


def tqdm_warm() -> None:
    """One bar, the first steps four times as slow."""
    _plain(warming(0.08, 12, 4), 400, desc="warm")


def tqdm_level() -> None:
    """One bar that slows down for good after an eighth."""
    _plain(stepped(0.06, 50, 1.6), 400, desc="level")


def tqdm_ascii() -> None:
    """ASCII, few and slow steps: seconds an iteration."""
    _plain(steady(1.3, 0.05), 30, ascii=True, desc="slow")


def tqdm_scaled() -> None:
    """Bytes with a scaled unit and a postfix."""
    tqdm = import_module("tqdm").tqdm

    draw = steady(0.1)
    with tqdm(total=4_000_000, unit="B", unit_scale=True) as bar:
        for step in range(320):
            time.sleep(draw(step))
            bar.update(12_500)
            bar.set_postfix(loss=1 / (1 + step))


def tqdm_endless() -> None:
    """A bar without a total."""
    tqdm = import_module("tqdm").tqdm

    draw = steady(0.05)
    for step in tqdm(iter(range(100)), desc="stream"):
        time.sleep(draw(step))


def tqdm_nested() -> None:
    """Two bars: epochs and their batches, with a pause after each epoch."""
    tqdm = import_module("tqdm").tqdm

    draw = steady(0.06)
    for _ in tqdm(range(10), desc="epochs"):
        for step in tqdm(range(50), desc="batches", leave=False):
            time.sleep(draw(step))
        time.sleep(0.4)


def tqdm_phases() -> None:
    """Bars for training and validation in turn, the epoch in the description."""
    tqdm = import_module("tqdm").tqdm

    draw = steady(0.06)
    for epoch in range(1, 11):
        for step in tqdm(range(50), desc=f"Epoch {epoch}/10 train"):
            time.sleep(draw(step))
        for step in tqdm(range(10), desc=f"Epoch {epoch}/10 valid"):
            time.sleep(draw(step) / 2)


def rich_bar() -> None:
    """The default columns of rich."""
    track = import_module("rich.progress").track

    draw = steady(0.1)
    for step in track(range(320), description="Working..."):
        time.sleep(draw(step))


def rich_nested() -> None:
    """Two tasks of one rich display, counted."""
    rich = import_module("rich.progress")
    draw = steady(0.06)
    columns = (
        rich.TextColumn("{task.description}"),
        rich.BarColumn(),
        rich.MofNCompleteColumn(),
        rich.TimeRemainingColumn(),
    )
    with rich.Progress(*columns) as display:
        outer = display.add_task("epochs", total=10)
        inner = display.add_task("batches", total=50)
        for _ in range(10):
            display.reset(inner)
            for step in range(50):
                time.sleep(draw(step))
                display.advance(inner)
            display.advance(outer)


def keras_fit(verbose: int = 1) -> None:
    """Train a small Keras model, with validation."""
    os.environ["KERAS_BACKEND"] = "torch"
    keras, np = import_module("keras"), import_module("numpy")
    draw = steady(0.08)

    class Slow(keras.callbacks.Callback):  # type: ignore[name-defined, misc]
        def on_train_batch_end(self, batch: int, logs: object = None) -> None:  # noqa: ARG002
            time.sleep(draw(batch))

        def on_test_batch_end(self, batch: int, logs: object = None) -> None:  # noqa: ARG002
            time.sleep(draw(batch) / 2)

    model = keras.Sequential([keras.layers.Dense(1)])
    model.compile(loss="mse")
    x, y = np.ones((400, 4)), np.ones((400, 1))
    model.fit(
        x,
        y,
        epochs=10,
        batch_size=10,
        validation_data=(x[:100], y[:100]),
        validation_batch_size=10,
        callbacks=[Slow()],
        verbose=verbose,
    )


def keras_lines() -> None:
    """Keras with a line an epoch."""
    keras_fit(2)


def trainer() -> None:
    """Train with the Hugging Face Trainer, evaluating every epoch."""
    torch, transformers = import_module("torch"), import_module("transformers")
    draw = steady(0.1)

    class Slow(torch.nn.Module):  # type: ignore[name-defined, misc]
        def __init__(self) -> None:
            super().__init__()
            self.weight = torch.nn.Parameter(torch.ones(1))

        def forward(self, x: Any, labels: Any) -> dict[str, Any]:
            time.sleep(draw(0) * (1 if self.training else 0.5))
            value = x.sum() * self.weight
            return {"loss": ((value - labels.sum()) ** 2).mean(), "logits": value[None]}

    rows = [{"x": torch.ones(1), "labels": torch.ones(1)} for _ in range(256)]
    transformers.Trainer(
        model=Slow(),
        args=transformers.TrainingArguments(
            output_dir="unused",
            num_train_epochs=5,
            per_device_train_batch_size=4,
            per_device_eval_batch_size=4,
            eval_strategy="epoch",
            save_strategy="no",
            logging_steps=20,
            report_to=[],
            use_cpu=True,
        ),
        train_dataset=rows,
        eval_dataset=rows[:32],
    ).train()


def lightning_tqdm(*, rich: bool = False) -> None:
    """Train with Lightning, validating every epoch."""
    torch, lightning = import_module("torch"), import_module("lightning")
    callbacks = import_module("lightning.pytorch.callbacks")
    loader = import_module("torch.utils.data").DataLoader
    draw = steady(0.06)

    class Slow(lightning.LightningModule):  # type: ignore[name-defined, misc]
        def __init__(self) -> None:
            super().__init__()
            self.layer = torch.nn.Linear(1, 1)

        def training_step(self, batch: Any, _: int) -> Any:
            time.sleep(draw(0))
            return self.layer(batch).mean()

        def validation_step(self, batch: Any, _: int) -> Any:
            time.sleep(draw(0) / 2)
            return self.layer(batch).mean()

        def configure_optimizers(self) -> Any:
            return torch.optim.SGD(self.parameters(), lr=0.01)

    train = loader(torch.ones(200, 1), batch_size=4)
    valid = loader(torch.ones(40, 1), batch_size=4)
    bar = callbacks.RichProgressBar() if rich else callbacks.TQDMProgressBar()
    lightning.Trainer(
        max_epochs=10,
        accelerator="cpu",
        logger=False,
        enable_checkpointing=False,
        callbacks=[bar],
    ).fit(Slow(), train, valid)


def lightning_rich() -> None:
    """Train with Lightning and its rich bar."""
    lightning_tqdm(rich=True)


def lines_pipe() -> None:
    """Lines of epoch and step, printed into a pipe that Python buffers by blocks."""
    draw = steady(0.012)
    for epoch in range(1, 11):
        for step in range(1, 201):
            time.sleep(draw(step))
            print(f"Epoch [{epoch}/10], Step [{step}/200], Loss: {1 / step:.4f}")


def lines() -> None:
    """Lines of steps that count through the whole run."""
    draw = steady(0.1)
    for step in range(1, 321):
        time.sleep(draw(step))
        if step % 4 == 0:
            print(f"step {step} of 320 | loss {1 / step:.4f} | lr 0.001")


def epochs() -> None:
    """A line an epoch, when it is done."""
    draw = steady(1.0, 0.05)
    for epoch in range(1, 31):
        time.sleep(draw(epoch))
        print(f"epoch {epoch}/30: loss {1 / epoch:.4f} accuracy 0.5")


def cmake() -> None:
    """Lines as make prints them for CMake: percent only (written, not built)."""
    draw = steady(0.2)
    for step in range(1, 151):
        time.sleep(draw(step))
        share = 100 * step // 150
        print(
            f"[{share:3d}%] Building C object CMakeFiles/a.dir/{step}.c.o", flush=True
        )


PROGRAMS: dict[str, Callable[[], None]] = {
    program.__name__: program
    for program in (
        tqdm_bar,
        tqdm_pipe,
        tqdm_warm,
        tqdm_level,
        tqdm_ascii,
        tqdm_scaled,
        tqdm_endless,
        tqdm_nested,
        tqdm_phases,
        rich_bar,
        rich_nested,
        keras_fit,
        keras_lines,
        trainer,
        lightning_tqdm,
        lightning_rich,
        lines_pipe,
        lines,
        epochs,
        cmake,
    )
}


def record(name: str, directory: Path, command: list[str]) -> None:
    """Run one program and write what it printed, and when."""
    ours, theirs = os.pipe() if name in IN_A_PIPE else terminal()
    began = time.monotonic()
    child = subprocess.Popen(
        command,
        stdout=theirs,
        stderr=theirs,
        stdin=subprocess.DEVNULL,
        env={
            **os.environ,
            "COLUMNS": str(COLUMNS),
            "TERM": "xterm",
            "PYTHONUNBUFFERED": "",
        },
    )
    os.close(theirs)
    with gzip.open(directory / f"{name}.jsonl.gz", "wt") as file:
        for moment, chunk in pieces(ours, began):
            shown = FOLDERS.sub(b"", chunk)
            row = [round(moment, 3), shown.decode("latin-1")]
            file.write(json.dumps(row) + "\n")
    print(name, child.wait(), f"{time.monotonic() - began:.1f} s")


def terminal() -> tuple[int, int]:
    """Open a terminal with a size: without one tqdm draws nothing."""
    ours, theirs = pty.openpty()
    size = struct.pack("HHHH", ROWS, COLUMNS, 0, 0)
    fcntl.ioctl(theirs, termios.TIOCSWINSZ, size)
    return ours, theirs


def pieces(descriptor: int, began: float) -> Iterator[tuple[float, bytes]]:
    """Yield what can be read, with its time, up to the end."""
    while True:
        select.select([descriptor], [], [])
        try:
            chunk = os.read(descriptor, 65536)
        except OSError:  # a terminal's other end is closed
            return
        if not chunk:
            return
        yield time.monotonic() - began, chunk


def main() -> None:
    """Play one program, or record those named."""
    if sys.argv[1] == "--play":
        PROGRAMS[sys.argv[2]]()
        return
    if sys.argv[2:3] == ["--command"]:
        record(sys.argv[3], Path(sys.argv[1]), ["sh", "-c", sys.argv[4]])
        return
    for name in sys.argv[2:] or PROGRAMS:
        played = [sys.executable, __file__, "--play", name]
        record(name, Path(sys.argv[1]), played)


if __name__ == "__main__":
    main()
