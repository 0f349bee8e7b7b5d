"""How many samples a batch has, and how long they are, whatever it is made of."""

from math import prod
from typing import Any, NamedTuple


class BatchShape(NamedTuple):
    """The samples of a batch, and the lengths of the longest and of all together."""

    rows: int
    longest: int
    total: int

    @property
    def padded(self) -> int:
        """The length of all samples, if each is padded to the longest."""
        return self.rows * self.longest


def rows_of_batch(batch: Any, size: int | None) -> Any:  # noqa: ANN401 - any loader's batch
    """Return what has a batch's rows: its first column, or the batch itself."""
    # a mapping of columns, as of a tokenizer
    if hasattr(batch, "keys") and hasattr(batch, "values"):
        return next(iter(batch.values()))
    # as many entries as samples: a list of rows
    if not isinstance(batch, list | tuple) or len(batch) == size:
        return batch
    # columns, such as (inputs, labels), have the same number of rows
    shapes = [getattr(column, "shape", None) for column in batch]
    rows = {shape[0] for shape in shapes if shape}
    return batch[0] if shapes and shapes[0] and len(rows) == 1 else batch


def longest_row(rows: Any) -> int | None:  # noqa: ANN401 - any loader's batch
    """Return the length of the longest of *rows*; None if they are not text or lists.

    To go over anything else could load or use up what it holds.
    """
    shape = getattr(rows, "shape", None)
    # a padded tensor: each row is as long as the longest
    if shape is not None:
        return int(prod(shape[1:])) if len(shape) > 1 else None
    if isinstance(rows, str | bytes):
        return len(rows)
    return max(map(len, rows), default=0) if isinstance(rows, list | tuple) else None


def shape_of_batch(batch: Any, size: int | None) -> BatchShape | None:  # noqa: ANN401
    """Return the shape of a batch; None if its samples have no length."""
    try:
        rows = rows_of_batch(batch, size)
        longest = longest_row(rows)
        if longest is None or isinstance(rows, str | bytes):
            return None if longest is None else BatchShape(1, longest, longest)
        is_padded = hasattr(rows, "shape")
        total = len(rows) * longest if is_padded else sum(map(len, rows))
        return BatchShape(len(rows), longest, total)
    except Exception:  # noqa: BLE001 - any error of a foreign batch
        return None


def sample_length(sample: Any) -> int:  # noqa: ANN401 - any data set's sample
    """Return the length of one sample of a data set, that of its longest column."""
    if hasattr(sample, "keys") and hasattr(sample, "values"):
        sample = tuple(sample.values())
    if isinstance(sample, tuple):
        return max(map(sample_length, sample), default=0)
    shape = getattr(sample, "shape", None)
    if shape is not None:
        return int(prod(shape))
    return len(sample) if hasattr(sample, "__len__") else 1
