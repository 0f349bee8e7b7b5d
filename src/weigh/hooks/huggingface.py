"""A callback for the Trainer of Hugging Face transformers.

``Trainer(..., callbacks=[WeighCallback()])`` marks the phases train and evaluate, notes
each epoch as an event, and times the optimizer's steps as batches.
"""

from typing import Any

from transformers import TrainerCallback

from weigh.flow.run.regions import event
from weigh.hooks.training import NumberWatch, TrainingPhases


class WeighCallback(TrainerCallback):
    """Reports the phases and batches of a ``Trainer`` to weigh.

    A step starts at the end of the previous one, so loading data counts;
    evaluating, saving and logging in between do not.
    """

    def __init__(self) -> None:
        self._training = TrainingPhases()
        self._numbers = NumberWatch()

    def on_train_begin(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        """Start the phase train, also after an interrupted one."""
        # the Trainer reports no end of a training that was interrupted by an exception
        self._training.end_all()
        self._training.begin("train")
        size = args.train_batch_size * args.gradient_accumulation_steps
        # below 0 where the Trainer does not know its number of steps
        left = state.max_steps - state.global_step
        self._training.begin_steps(size or None, left if left >= 0 else None)

    def on_epoch_begin(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        """Record the epoch, counted from 0."""
        event("epoch", int(state.epoch or 0))
        self._training.pause()

    def on_step_end(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        """End a step; start evaluate if the Trainer does."""
        self._training.step()
        self._begin_evaluation(control)

    def on_epoch_end(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        """Start evaluate if the Trainer does."""
        # evaluation at the end of an epoch is announced here, that of a step above
        self._begin_evaluation(control)

    def on_log(
        self, args: Any, state: Any, control: Any, logs: Any = None, **_: Any
    ) -> None:
        """Check loss and gradient; leave logging out of the next step."""
        # with other names the Trainer logs learning rates and epochs, which are always
        # finite
        known = {name: (logs or {}).get(name) for name in ("loss", "grad_norm")}
        self._numbers.look(int(state.global_step), **known)
        self._training.pause()

    def on_save(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        """Leave saving out of the next step."""
        self._training.pause()

    def on_prediction_step(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        """Start the phase evaluate where nothing else announced it."""
        if not self._training.is_open("evaluate"):
            self._training.begin("evaluate")

    def on_evaluate(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        """End the phase evaluate."""
        self._training.end("evaluate")
        self._training.pause()

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
        self._training.end_all()

    def _begin_evaluation(self, control: Any) -> None:
        if control.should_evaluate and not self._training.is_open("evaluate"):
            self._training.begin("evaluate")
