import importlib
import importlib.util
import sys
from collections.abc import Callable, Iterator
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest

from weigh.model.record import ProgramRegions

MODULE = "weigh.hooks.lightning"
Measured = Callable[[], ProgramRegions]


@pytest.fixture
def hooks(monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    """Give the hooks over a stand-in for Lightning, which need not be here."""
    for name in ("lightning", "lightning.pytorch", "lightning.pytorch.callbacks"):
        monkeypatch.setitem(sys.modules, name, ModuleType(name))
    sys.modules["lightning.pytorch.callbacks"].Callback = object  # type: ignore[attr-defined]
    sys.modules.pop(MODULE, None)
    yield importlib.import_module(MODULE)
    sys.modules.pop(MODULE)


class Trainer:
    """Calls a callback in the order in which Lightning's Trainer does."""

    num_training_batches: float = 3
    max_epochs = 2
    current_epoch = 0
    sanity_checking = False
    train_dataloader = SimpleNamespace(batch_size=8)

    def __init__(self, callback: Any) -> None:
        self.callback = callback

    def fit(self, *, breaks_at: int = 100) -> None:
        self.sanity_checking = True
        self.validate()
        self.sanity_checking = False
        self.callback.on_train_start(self, None)
        for self.current_epoch in range(2):
            self.callback.on_train_epoch_start(self, None)
            for number in range(3):
                if number == breaks_at:
                    self.callback.on_exception(self, None, ValueError())
                    return
                rows = SimpleNamespace(shape=(8 if number < 2 else 5, 4))
                self.callback.on_train_batch_end(self, None, None, [rows], number)
            self.validate()
        self.callback.on_train_end(self, None)

    def validate(self) -> None:
        self.callback.on_validation_start(self, None)
        self.callback.on_validation_end(self, None)


def phases(regions: Measured) -> list[tuple[str, int, int]]:
    return [(phase.name, phase.depth, phase.calls) for phase in regions().phases]


def test_validations_lie_within_training_and_the_first_try_does_not(
    hooks: Any, regions: Measured
) -> None:
    Trainer(hooks.WeighCallback()).fit()
    assert phases(regions) == [
        ("sanity check", 0, 1),
        ("train", 0, 1),
        ("validate", 1, 2),
    ]


def test_training_batches_are_counted_with_their_samples(
    hooks: Any, regions: Measured
) -> None:
    Trainer(hooks.WeighCallback()).fit()
    (loop,) = regions().batches
    assert (loop.count, loop.size, loop.total, loop.samples) == (6, 8, 6, 42)


def test_a_loss_that_is_lost_is_reported(hooks: Any, regions: Measured) -> None:
    trainer = Trainer(hooks.WeighCallback())
    trainer.callback.on_train_start(trainer, None)
    trainer.callback.on_train_batch_end(trainer, None, {"loss": float("inf")}, [], 7)
    assert [(one.name, one.value) for one in regions().events] == [
        ("loss not finite", 7)
    ]


def test_epochs_are_events_counted_from_0(hooks: Any, regions: Measured) -> None:
    Trainer(hooks.WeighCallback()).fit()
    assert [one.value for one in regions().events] == [0, 1]


def test_a_training_that_breaks_off_is_ended(hooks: Any, regions: Measured) -> None:
    Trainer(hooks.WeighCallback()).fit(breaks_at=1)
    (loop,) = regions().batches
    assert phases(regions)[-1] == ("train", 0, 1)
    assert loop.count == 1


def test_a_stream_without_an_end_has_no_total(hooks: Any, regions: Measured) -> None:
    trainer = Trainer(hooks.WeighCallback())
    trainer.num_training_batches = float("inf")
    trainer.fit()
    assert regions().batches[0].total is None


@pytest.mark.parametrize("stage", ["test", "predict"])
def test_other_stages_are_phases(hooks: Any, regions: Measured, stage: str) -> None:
    callback = hooks.WeighCallback()
    getattr(callback, f"on_{stage}_start")(None, None)
    getattr(callback, f"on_{stage}_end")(None, None)
    assert phases(regions) == [(stage, 0, 1)]


def rows(number: int) -> SimpleNamespace:
    return SimpleNamespace(shape=(number, 3))


@pytest.mark.parametrize(
    ("batch", "samples"),
    [
        (rows(7), 7),
        ([rows(7), rows(7)], 7),
        ({"input_ids": rows(5), "labels": rows(5)}, 5),
        (({"x": rows(4)}, rows(4)), 4),
        (SimpleNamespace(shape=()), None),
        ("text", None),
        ([], None),
        (None, None),
    ],
)
def test_samples_are_the_first_tensors_rows(
    hooks: Any, batch: object, samples: int | None
) -> None:
    assert hooks.samples_in(batch) == samples


def test_a_batch_of_a_shape_never_seen_does_not_end_a_training(
    hooks: Any, regions: Measured
) -> None:
    callback = hooks.WeighCallback()
    callback.on_train_start(Trainer(callback), None)
    callback.on_train_batch_end(None, None, None, SimpleNamespace(values=3), 0)
    callback.on_train_end(None, None)
    (loop,) = regions().batches
    assert (loop.count, loop.samples) == (1, None)
