"""How many samples a batch has, and how long they are, whatever it is made of."""

# ruff: noqa: ANN401 - any loader's batch, any data set's sample

from collections.abc import Sequence
from math import prod
from typing import Any, NamedTuple


class BatchShape(NamedTuple):
    """The samples of a batch, and the lengths of the longest and of all together."""

    rows: int
    longest: int
    total: int

    @classmethod
    def of(cls, lengths: Sequence[int]) -> "BatchShape":
        """Return the shape of samples of such lengths."""
        return cls(len(lengths), max(lengths, default=0), sum(lengths))

    @property
    def padded(self) -> int:
        """The length of all samples, if each is padded to the longest."""
        return self.rows * self.longest


def rows_of_batch(batch: Any, size: int | None) -> Any:
    """Return what has a batch's rows: its first column, or the batch itself."""
    if _has_columns(batch):
        return next(iter(batch.values()))
    # as many entries as samples: a list of rows
    if not isinstance(batch, list | tuple) or len(batch) == size:
        return batch
    # columns, such as (inputs, labels), have the same number of rows
    rows = {column.shape[0] for column in batch if getattr(column, "shape", None)}
    if len(rows) != 1:
        return batch
    first = rows_of_batch(batch[0], size) if _has_columns(batch[0]) else batch[0]
    shape = getattr(first, "shape", None)
    return first if shape and shape[0] in rows else batch


def _has_columns(batch: Any) -> bool:
    """Return whether it is a mapping of columns, as a tokenizer's; not pandas' own."""
    return hasattr(batch, "keys") and callable(getattr(batch, "values", None))


def shape_of_rows(rows: Any) -> BatchShape | None:
    """Return the shape of what `rows_of_batch` returned; None if rows have no length.

    To go over anything but lists and text could load or use up what it holds.
    """
    try:
        if isinstance(rows, str | bytes):
            return BatchShape(1, len(rows), len(rows))
        # a padded tensor: each row is as long as the longest
        if hasattr(rows, "shape"):
            lengths = [int(prod(rows.shape[1:]))] * rows.shape[0]
            return BatchShape.of(lengths) if len(rows.shape) > 1 else None
        is_list = isinstance(rows, list | tuple)
        return BatchShape.of([*map(len, rows)]) if is_list else None
    except Exception:  # noqa: BLE001 - any error of a foreign batch
        return None


def sample_length(sample: Any) -> int:
    """Return the length of one sample of a data set, that of its longest column."""
    if _has_columns(sample):
        sample = tuple(sample.values())
    if isinstance(sample, tuple):
        return max(map(sample_length, sample), default=0)
    shape = getattr(sample, "shape", None)
    if shape is not None:
        return int(prod(shape))
    return len(sample) if hasattr(sample, "__len__") else 1
