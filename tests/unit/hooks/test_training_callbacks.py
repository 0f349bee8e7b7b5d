"""The callbacks for trainers, over stand-ins for the frameworks."""

import importlib
import sys
from collections.abc import Callable, Iterator
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest

from weigh.hooks import training
from weigh.hooks.training import TrainingPhases
from weigh.model.record import ProgramRegions

Measured = Callable[[], ProgramRegions]


def reported_by(regions: Measured) -> list[object]:
    """Return phases, loops and events as a test writes them."""
    report = regions()
    return [
        [(phase.name, phase.depth, phase.calls) for phase in report.phases],
        [(one.count, one.size, one.total, one.samples) for one in report.batches],
        [(event.name, event.value) for event in report.events],
    ]


def hooks_over(
    module: str, base: str, hooks: str, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Any]:
    """Import the hooks of a framework anew, over a stand-in for it."""
    parts = module.split(".")
    for depth in range(len(parts)):
        name = ".".join(parts[: depth + 1])
        monkeypatch.setitem(sys.modules, name, ModuleType(name))
    setattr(sys.modules[module], base, object)
    monkeypatch.delitem(sys.modules, hooks, raising=False)
    yield importlib.import_module(hooks)
    del sys.modules[hooks]


@pytest.fixture
def hugging_face(monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    names = ("transformers", "TrainerCallback", "weigh.hooks.huggingface")
    yield from hooks_over(*names, monkeypatch)


@pytest.fixture
def lightning(monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    names = ("lightning.pytorch.callbacks", "Callback", "weigh.hooks.lightning")
    yield from hooks_over(*names, monkeypatch)


class HuggingFaceTrainer:
    """Calls a callback in the order in which transformers' Trainer does."""

    def __init__(self, hooks: Any) -> None:
        self.callback = hooks.WeighCallback()
        self.args = SimpleNamespace(train_batch_size=4, gradient_accumulation_steps=2)
        self.state = SimpleNamespace(max_steps=6, global_step=0, epoch=0.0)
        self.control = SimpleNamespace(should_evaluate=False)

    def notify(self, event: str, **words: Any) -> None:
        called = getattr(self.callback, event)
        called(self.args, self.state, self.control, model=None, **words)

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


EPOCHS = [("epoch", 0), ("epoch", 1)]


def test_transformers_steps_are_batches_of_the_effective_size(
    hugging_face: Any, regions: Measured
) -> None:
    HuggingFaceTrainer(hugging_face).train()
    phases = [("train", 0, 1), ("evaluate", 1, 2)]
    assert reported_by(regions) == [phases, [(6, 8, 6, None)], EPOCHS]


def test_an_evaluation_by_itself_is_a_phase(
    hugging_face: Any, regions: Measured
) -> None:
    for event in ("on_evaluate", "on_predict"):
        HuggingFaceTrainer(hugging_face).predict(event)
    assert reported_by(regions)[0] == [("evaluate", 0, 2)]


def test_a_training_begun_again_after_an_error_is_a_second_call(
    hugging_face: Any, regions: Measured
) -> None:
    trainer = HuggingFaceTrainer(hugging_face)
    trainer.train(breaks_at=5)
    trainer.state.global_step = 0
    trainer.train()
    assert reported_by(regions)[0] == [("train", 0, 2), ("evaluate", 1, 3)]


def test_a_loss_that_is_lost_is_reported_once_and_a_gradient_that_stays_so(
    hugging_face: Any, regions: Measured, capsys: pytest.CaptureFixture[str]
) -> None:
    trainer = HuggingFaceTrainer(hugging_face)
    for step, loss, norm in (
        (1, 2.0, "inf"),
        (2, 1.9, 3.0),
        *((step, float("nan"), float("nan")) for step in range(3, 9)),
    ):
        trainer.state.global_step = step
        trainer.notify("on_log", logs={"loss": loss, "grad_norm": norm, "epoch": 1})
    trainer.notify("on_log", logs={"eval_runtime": 1.0})
    assert reported_by(regions)[2] == [
        ("loss not finite", 3),
        ("grad_norm not finite", 5),
    ]
    assert capsys.readouterr().err.splitlines() == [
        "weigh: loss is nan at step 3",
        "weigh: grad_norm is nan at step 5",
    ]


class LightningTrainer:
    """Calls a callback in the order in which Lightning's Trainer does."""

    max_epochs = 2
    current_epoch = 0
    sanity_checking = False
    train_dataloader = SimpleNamespace(batch_size=8)

    def __init__(self, hooks: Any, batches: float = 3) -> None:
        self.callback = hooks.WeighCallback()
        self.num_training_batches = batches

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
                rows = tensor(8 if number < 2 else 5)
                self.callback.on_train_batch_end(self, None, None, [rows], number)
            self.validate()
        self.callback.on_train_end(self, None)

    def validate(self) -> None:
        self.callback.on_validation_start(self, None)
        self.callback.on_validation_end(self, None)


def tensor(rows: int) -> Any:
    return type("Tensor", (list,), {"shape": (rows, 3)})(range(rows))


TRIED = ("sanity check", 0, 1)


@pytest.mark.parametrize(
    ("batches", "breaks_at", "reported"),
    [
        (3, 100, [[TRIED, ("train", 0, 1), ("validate", 1, 2)], (6, 8, 6, 42), EPOCHS]),
        (3, 1, [[TRIED, ("train", 0, 1)], (1, 8, 6, 8), EPOCHS[:1]]),
        # a stream without an end has no total
        (
            float("inf"),
            100,
            [[TRIED, ("train", 0, 1), ("validate", 1, 2)], (6, 8, None, 42), EPOCHS],
        ),
    ],
)
def test_lightnings_batches_are_counted_with_their_samples(
    lightning: Any,
    regions: Measured,
    batches: float,
    breaks_at: int,
    reported: list[Any],
) -> None:
    LightningTrainer(lightning, batches).fit(breaks_at=breaks_at)
    phases, loop, events = reported
    assert reported_by(regions) == [phases, [loop], events]


@pytest.mark.parametrize(
    ("outputs", "batch", "events"),
    [
        ({"loss": float("inf")}, None, [("loss not finite", 7)]),
        # a batch of a shape never seen does not end a training
        (None, SimpleNamespace(values=3), []),
    ],
)
def test_a_batch_of_lightning_may_be_anything(
    lightning: Any, regions: Measured, outputs: object, batch: object, events: object
) -> None:
    trainer = LightningTrainer(lightning)
    trainer.callback.on_train_start(trainer, None)
    trainer.callback.on_train_batch_end(trainer, None, outputs, batch, 7)
    trainer.callback.on_train_end(trainer, None)
    assert reported_by(regions)[1:] == [[(1, 8, 6, None)], events]


def test_other_stages_are_phases(lightning: Any, regions: Measured) -> None:
    callback = lightning.WeighCallback()
    for stage in ("test", "predict"):
        getattr(callback, f"on_{stage}_start")(None, None)
        getattr(callback, f"on_{stage}_end")(None, None)
    assert reported_by(regions)[0] == [("test", 0, 1), ("predict", 0, 1)]


def test_what_is_paused_over_is_in_no_step_and_a_long_loop_is_reported_before_its_end(
    regions: Measured, monkeypatch: pytest.MonkeyPatch
) -> None:
    now = [100.0]
    monkeypatch.setattr(training, "clock", lambda: now[0])
    steps = TrainingPhases()
    steps.begin_steps(size=8, total=2)
    now[0] += 5
    steps.step()
    assert regions().batches[0].count == 1
    now[0] += 60  # evaluating
    steps.pause()
    now[0] += 3
    steps.step()
    steps.end_steps()
    (loop,) = regions().batches
    assert (loop.count, loop.time_min, loop.time_max) == (2, 3, 5)


def test_a_loop_begun_anew_ends_the_one_before(regions: Measured) -> None:
    steps = TrainingPhases()
    for _ in range(2):
        steps.begin_steps(size=4, total=1)
        steps.step([1, 2, 3])
    steps.end_steps()
    assert reported_by(regions)[1] == [(2, 4, 2, 6)]
    steps.begin_steps(size=4, total=1)
    steps.step(None)
    steps.end_steps()
    assert reported_by(regions)[1] == [(3, 4, 3, None)]


def test_ending_a_phase_ends_what_is_open_within_and_nothing_else(
    regions: Measured,
) -> None:
    phases = TrainingPhases()
    phases.begin("train")
    phases.end("evaluate")
    phases.step()
    phases.pause()
    assert phases.is_open("train")
    phases.begin("evaluate")
    phases.end("train")
    phases.begin("test")
    phases.end_all()
    assert reported_by(regions)[:2] == [
        [("train", 0, 1), ("evaluate", 1, 1), ("test", 0, 1)],
        [],
    ]
