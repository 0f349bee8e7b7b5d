"""The site file's queues, where the scheduler does not tell."""

import tomllib

import pytest

from weigh.errors import FormatError
from weigh.flow.site.live_limits import site_limits, with_site
from weigh.model.cluster import ClusterLimits, QueueLimits
from weigh.units import DAY, GIB, HOUR, MIB

FILE = """\
[cluster.queues."gpu"]
default = true
time_limit = "2-00:00:00"
default_time = "01:00:00"
memory = "190GiB"
cpus = 32
gpus = { "v100" = 24 }
[cluster.queues."serial"]
open = false
"""


def table(text: str) -> dict[str, object]:
    cluster: dict[str, object] = tomllib.loads(text)["cluster"]
    return cluster


def test_the_file_s_queues_are_limits() -> None:
    gpu, serial = site_limits(table(FILE)).queues

    assert (gpu.time_limit, gpu.default_time) == (2 * DAY, HOUR)
    assert (gpu.memory, gpu.cpus, gpu.default) == (190 * GIB, 32, True)
    assert (serial.open, serial.time_limit) == (False, None)


def test_what_the_scheduler_states_wins_and_the_rest_is_filled_in() -> None:
    known = ClusterLimits(queues=(QueueLimits(name="gpu", time_limit=HOUR),))

    merged = with_site(known, table(FILE))

    assert merged is not None
    assert merged.queues[0].time_limit == HOUR
    assert merged.queues[0].memory == 190 * GIB
    assert merged.nodes[0].gpus == {"v100": 24}


def test_without_a_scheduler_s_word_the_file_s_counts() -> None:
    alone = with_site(None, table(FILE))

    assert alone is not None
    assert [queue.name for queue in alone.queues] == ["gpu", "serial"]


def test_without_a_file_nothing_is_made_up() -> None:
    assert with_site(None, {}) is None


@pytest.mark.parametrize(
    ("row", "named"),
    [
        ('time_limit = "soon"', "cluster.queues.q.time_limit"),
        ("memory = 4", "cluster.queues.q.memory"),
        ("cpus = -1", "cluster.queues.q.cpus"),
        ("gpus = 3", "cluster.queues.q.gpus"),
    ],
)
def test_a_value_that_is_none_is_named(row: str, named: str) -> None:
    with pytest.raises(FormatError, match=named.replace(".", r"\.")):
        site_limits(table(f"[cluster.queues.q]\n{row}\n"))


def test_a_table_that_is_none_is_named() -> None:
    with pytest.raises(FormatError, match=r"cluster\.queues"):
        site_limits({"queues": ["gpu"]})


def test_sizes_read_as_weigh_config_writes_them() -> None:
    (queue,) = site_limits(table('[cluster.queues.q]\nmemory = "16000MiB"\n')).queues

    assert queue.memory == 16000 * MIB
