import importlib
import importlib.util
import sys
from collections.abc import Callable, Iterator
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest

from weigh.model.record import ProgramRegions

MODULE = "weigh.hooks.huggingface"
Measured = Callable[[], ProgramRegions]


@pytest.fixture
def callback(monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    """Give the callback over a stand-in for transformers, which need not be here."""
    transformers = ModuleType("transformers")
    transformers.TrainerCallback = object  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "transformers", transformers)
    sys.modules.pop(MODULE, None)
    yield importlib.import_module(MODULE).WeighCallback()
    sys.modules.pop(MODULE)


class Trainer:
    """Calls a callback in the order in which transformers' Trainer does."""

    def __init__(self, callback: Any) -> None:
        self.callback = callback
        self.args = SimpleNamespace(train_batch_size=4, gradient_accumulation_steps=2)
        self.state = SimpleNamespace(max_steps=6, global_step=0, epoch=0.0)
        self.control = SimpleNamespace(should_evaluate=False)

    def notify(self, event: str, **words: Any) -> None:
        told = getattr(self.callback, event)
        told(self.args, self.state, self.control, model=None, **words)

    def train(self, *, breaks_at: int = 100) -> None:
        self.notify("on_train_begin")
        for epoch in range(2):
            self.state.epoch = float(epoch)
            self.notify("on_epoch_begin")
            for _ in range(3):
                self.state.global_step += 1
                if self.state.global_step == breaks_at:
                    return
                self.notify("on_step_end")
            self.control.should_evaluate = True
            self.notify("on_epoch_end")
            self.notify("on_log", logs={})
            self.predict("on_evaluate")
            self.control.should_evaluate = False
            self.notify("on_save")
        self.notify("on_train_end")

    def predict(self, event: str) -> None:
        self.notify("on_prediction_step")
        self.notify("on_prediction_step")
        self.notify(event, metrics={})


def phases(regions: Measured) -> list[tuple[str, int, int]]:
    return [(phase.name, phase.depth, phase.calls) for phase in regions().phases]


def test_evaluations_during_training_lie_within_it(
    callback: Any, regions: Measured
) -> None:
    Trainer(callback).train()
    assert phases(regions) == [("train", 0, 1), ("evaluate", 1, 2)]


def test_steps_are_batches_of_the_effective_size(
    callback: Any, regions: Measured
) -> None:
    Trainer(callback).train()
    (loop,) = regions().batches
    assert (loop.count, loop.size, loop.total) == (6, 8, 6)


def test_epochs_are_events_counted_from_0(callback: Any, regions: Measured) -> None:
    Trainer(callback).train()
    assert [(one.name, one.value) for one in regions().events] == [
        ("epoch", 0),
        ("epoch", 1),
    ]


def test_a_loss_that_is_lost_is_reported_once_and_a_gradient_that_stays_so(
    callback: Any, regions: Measured, capsys: pytest.CaptureFixture[str]
) -> None:
    trainer = Trainer(callback)
    for step, loss, norm in (
        (1, 2.0, "inf"),
        (2, 1.9, 3.0),
        *((step, float("nan"), float("nan")) for step in range(3, 9)),
    ):
        trainer.state.global_step = step
        trainer.notify("on_log", logs={"loss": loss, "grad_norm": norm, "epoch": 1})
    trainer.notify("on_log", logs={"eval_runtime": 1.0})
    found = [(one.name, one.value) for one in regions().events]
    assert found == [("loss not finite", 3), ("grad_norm not finite", 5)]
    assert capsys.readouterr().err.splitlines() == [
        "weigh: loss is nan at step 3",
        "weigh: grad_norm is nan at step 5",
    ]


@pytest.mark.parametrize("event", ["on_evaluate", "on_predict"])
def test_an_evaluation_by_itself_is_a_phase(
    callback: Any, regions: Measured, event: str
) -> None:
    Trainer(callback).predict(event)
    assert phases(regions) == [("evaluate", 0, 1)]


def test_a_training_begun_again_after_an_error_is_a_second_call(
    callback: Any, regions: Measured
) -> None:
    Trainer(callback).train(breaks_at=5)
    Trainer(callback).train()
    assert phases(regions) == [("train", 0, 2), ("evaluate", 1, 3)]
