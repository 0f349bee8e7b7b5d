"""``@pytest.mark.weigh(max_memory="200MiB")``: fail a test that takes more memory.

pytest loads this where weigh is installed, so it imports the rest of weigh only for
tests that are marked.
"""

from collections.abc import Generator

import pytest

_LIMIT = pytest.StashKey[int]()


def pytest_configure(config: pytest.Config) -> None:
    """Register the mark."""
    config.addinivalue_line(
        "markers",
        "weigh(max_memory): fail if the test adds more memory to the process, "
        'such as max_memory="200MiB"',
    )


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Read the limits of marked tests, before any test runs.

    Raises:
        UsageError: a mark is invalid.
    """
    for item in items:
        mark = item.get_closest_marker("weigh")
        if mark is not None:
            item.stash[_LIMIT] = _limit(item.nodeid, mark)


def _limit(test: str, mark: pytest.Mark) -> int:
    from weigh.errors import FormatError  # noqa: PLC0415 - only for marked tests
    from weigh.units import parse_size  # noqa: PLC0415 - as above

    text = mark.kwargs.get("max_memory")
    if mark.args or [*mark.kwargs] != ["max_memory"] or not isinstance(text, str):
        raise pytest.UsageError(
            f'{test}: write the mark as @pytest.mark.weigh(max_memory="200MiB")'
        )
    try:
        return parse_size(text)
    except FormatError as error:
        raise pytest.UsageError(f"{test}: max_memory: {error}") from error


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call(item: pytest.Item) -> Generator[None, object, object]:
    """Measure what a marked test adds; its fixtures do not count."""
    limit = item.stash.get(_LIMIT, None)
    if limit is None:
        return (yield)
    from weigh.probe.own_memory import own_memory  # noqa: PLC0415 - as above
    from weigh.units import format_size  # noqa: PLC0415 - as above

    memory = own_memory()
    before = memory.read()
    is_exact = memory.reset()
    result = yield
    after = memory.read()
    if before is None or after is None:
        return result
    # where the mark cannot be reset, it shows only a new peak of the process
    peak = after[1] if is_exact or after[1] > before[1] else after[0]
    added = max(0, peak - before[0])
    item.user_properties.append(("weigh_memory", added))
    if added > limit:
        pytest.fail(
            f"the test took {format_size(added)} of memory, more than "
            f"{format_size(limit)}",
            pytrace=False,
        )
    return result
