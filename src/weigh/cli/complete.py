"""What the shell offers at <TAB> for an argument: files, jobs, records."""

import os
from collections.abc import Iterator
from itertools import islice

import click
from click.shell_completion import CompletionItem

from weigh.errors import WeighError

_MOST = 50


def files(_: click.Context, __: click.Parameter, begun: str) -> list[CompletionItem]:
    """Leave it to the shell, which knows about files."""
    return [CompletionItem(begun, type="file")]


def jobs(_: click.Context, __: click.Parameter, begun: str) -> list[CompletionItem]:
    """Offer the jobs that were submitted from here."""
    from weigh.flow.completion import job_names  # noqa: PLC0415 - only at <TAB>

    return _offer(job_names(os.getcwd(), os.environ), begun)


def records(_: click.Context, __: click.Parameter, begun: str) -> list[CompletionItem]:
    """Offer the labels and ids of the newest records."""
    from weigh.flow.completion import record_names  # noqa: PLC0415 - only at <TAB>

    return _offer(record_names(os.getcwd(), os.environ), begun)


def _offer(found: Iterator[tuple[str, str]], begun: str) -> list[CompletionItem]:
    """Give the first of *found*, (word, what it is), that go on from *begun*."""
    fitting = ((word, what) for word, what in found if word.startswith(begun))
    try:
        first = dict(islice(fitting, _MOST))
    except (WeighError, OSError):
        return []  # a shell that asks is no place to complain
    return [CompletionItem(word, help=what) for word, what in first.items()]
