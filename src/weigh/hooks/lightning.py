"""A callback for the Trainer of Lightning.

``Trainer(callbacks=[WeighCallback()])`` marks the phases train, validate, test and
predict, notes each epoch as an event, and times the training batches.
"""

from typing import Any

try:
    from lightning.pytorch.callbacks import Callback
except ModuleNotFoundError:
    from pytorch_lightning.callbacks import Callback  # the name before Lightning 2

from weigh.flow.run.regions import event
from weigh.hooks.training import NumberWatch, TrainingPhases


class WeighCallback(Callback):
    """Reports the phases and batches of a ``Trainer`` to weigh.

    A batch starts at the end of the previous one, so loading data counts;
    validating in between does not.
    """

    def __init__(self) -> None:
        super().__init__()
        self._training = TrainingPhases()
        self._numbers = NumberWatch()

    def on_train_start(self, trainer: Any, pl_module: Any) -> None:
        """Start the phase train."""
        self._training.begin("train")
        # a custom loader or a list of them has no batch size
        loader = getattr(trainer, "train_dataloader", None)
        size = getattr(loader, "batch_size", None)
        self._training.begin_steps(size or None, _batches_to_come(trainer))

    def on_train_epoch_start(self, trainer: Any, pl_module: Any) -> None:
        """Record the epoch, counted from 0."""
        event("epoch", trainer.current_epoch)
        self._training.pause()

    def on_train_batch_end(
        self,
        trainer: Any,
        pl_module: Any,
        outputs: Any,
        batch: Any,
        batch_idx: int,
    ) -> None:
        """End a batch."""
        self._training.step(batch)
        if self._numbers.is_due():
            # what training_step returned: the loss, or a dictionary with it
            found = outputs.get("loss") if isinstance(outputs, dict) else outputs
            self._numbers.look(getattr(trainer, "global_step", batch_idx), loss=found)

    def on_train_end(self, trainer: Any, pl_module: Any) -> None:
        """End the phase train."""
        self._training.end_steps()
        self._training.end("train")

    def on_validation_start(self, trainer: Any, pl_module: Any) -> None:
        """Start the phase validate; Lightning first tries it on a few batches."""
        self._training.begin(_validation_phase_name(trainer))

    def on_validation_end(self, trainer: Any, pl_module: Any) -> None:
        """End the phase validate."""
        self._training.end(_validation_phase_name(trainer))
        self._training.pause()

    def on_test_start(self, trainer: Any, pl_module: Any) -> None:
        """Start the phase test."""
        self._training.begin("test")

    def on_test_end(self, trainer: Any, pl_module: Any) -> None:
        """End the phase test."""
        self._training.end("test")

    def on_predict_start(self, trainer: Any, pl_module: Any) -> None:
        """Start the phase predict."""
        self._training.begin("predict")

    def on_predict_end(self, trainer: Any, pl_module: Any) -> None:
        """End the phase predict."""
        self._training.end("predict")

    def on_exception(self, trainer: Any, pl_module: Any, exception: Any) -> None:
        """End all open phases: the training was interrupted."""
        self._training.end_all()


def _validation_phase_name(trainer: Any) -> str:
    return "sanity check" if trainer.sanity_checking else "validate"


def _batches_to_come(trainer: Any) -> int | None:
    """Return the number of batches to come; None where training has no set end."""
    batches, epochs = trainer.num_training_batches, trainer.max_epochs
    if epochs is None or epochs < 0 or not isinstance(batches, int):  # inf: a stream
        return None
    return batches * max(0, int(epochs) - int(trainer.current_epoch))
