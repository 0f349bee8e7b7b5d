"""A callback for the Trainer of Hugging Face transformers.

``Trainer(..., callbacks=[WeighCallback()])`` marks the phases train and evaluate, notes
each epoch as an event, and times the optimizer's steps as batches.
"""

from typing import Any

from transformers import TrainerCallback

from weigh.flow.run.regions import event
from weigh.hooks.course import Course


class WeighCallback(TrainerCallback):
    """Tells weigh the course of a ``Trainer``; changes nothing of it.

    A step runs from the end of the one before, so that loading data counts;
    evaluating, saving and logging in between do not.
    """

    def __init__(self) -> None:
        self._course = Course()

    def on_train_begin(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        """Begin the phase train, after one that broke off too."""
        self._course.end_all()
        self._course.begin("train")
        size = args.train_batch_size * args.gradient_accumulation_steps
        left = state.max_steps - state.global_step
        self._course.begin_steps(size or None, left if left >= 0 else None)

    def on_epoch_begin(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        """Note the epoch, counted from 0."""
        event("epoch", int(state.epoch or 0))
        self._course.pause()

    def on_step_end(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        """End a step; see whether the Trainer evaluates now."""
        self._course.step()
        self._begin_evaluation(control)

    def on_epoch_end(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        """See whether the Trainer evaluates now."""
        self._begin_evaluation(control)

    def on_log(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        """Leave logging out of the next step."""
        self._course.pause()

    def on_save(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        """Leave saving out of the next step."""
        self._course.pause()

    def on_prediction_step(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        """Begin the phase evaluate where nothing else announced it."""
        if not self._course.is_open("evaluate"):
            self._course.begin("evaluate")

    def on_evaluate(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        """End the phase evaluate."""
        self._course.end("evaluate")
        self._course.pause()

    def on_predict(
        self,
        args: Any,
        state: Any,
        control: Any,
        metrics: Any,
        **_: Any,
    ) -> None:
        """End the phase evaluate: the Trainer predicts by the same steps."""
        self.on_evaluate(args, state, control)

    def on_train_end(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        """End the phase train."""
        self._course.end_all()

    def _begin_evaluation(self, control: Any) -> None:
        if control.should_evaluate and not self._course.is_open("evaluate"):
            self._course.begin("evaluate")
