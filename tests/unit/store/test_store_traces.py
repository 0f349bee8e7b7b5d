"""Files of Nextflow and Snakemake, in the forms that these tools write."""

import json

import pytest

from weigh.store.traces import (
    is_nextflow,
    is_snakemake,
    read_nextflow,
    read_snakemake,
)
from weigh.units import GIB, MIB

COLUMNS = (
    "task_id\thash\tname\tstatus\texit\tsubmit\tduration\trealtime\t%cpu\tpeak_rss"
)
TRACE = f"""{COLUMNS}\tmemory
1\ta1/b2c3d4\tALIGN (s1)\tCOMPLETED\t0\t2026-01-01 10:00:00.1\t3h 5m\t3h 2m 1s\t\
390.5%\t1.2 GB\t4 GB
2\ta1/b2c3d5\tALIGN (s2)\tFAILED\t137\t2026-01-01 10:00:00.1\t5m\t250ms\t-\t-\t4 GB
3\ta1/b2c3d6\tALIGN (s3)\tCACHED\t0\t2026-01-01 10:00:00.1\t5m\t2m\t9%\t1 GB\t4 GB
4\ta1/b2c3d7\tALIGN (s4)\tABORTED\t-\t2026-01-01 10:00:00.1\t5m\t2m\t9%\t1 GB\t4 GB
"""
RAW = """task_id\tprocess\tstatus\texit\tstart\trealtime\tpeak_rss\tcpus
1\tNFCORE:ALIGN\tCOMPLETED\t0\t1767261600000\t7321500\t1288490189\t4
"""
BENCHMARK = """s\th:m:s\tmax_rss\tmax_vms\tmax_uss\tmax_pss\tio_in\tio_out\t\
mean_load\tcpu_time
95.5000\t0:01:35\t512.50\t1024.00\t400.00\t450.25\t0.10\t2.00\t99.00\t94.10
0.1200\t0:00:00\tNA\tNA\tNA\tNA\tNA\tNA\tNA\tNA
"""
LINES = json.dumps(
    {
        "s": "95.5",
        "max_rss": 512.5,
        "max_pss": 450.25,
        "cpu_time": 94.1,
        "jobid": 3,
        "rule_name": "align",
        "wildcards": {"sample": "s1"},
        "params": {"k": 31, "flag": True},
        "threads": 4,
        "resources": {"mem_mb": 2000, "mem_mib": 1908},
        "input_size_mb": {"a.fq": 100.5, "b.fq": 20.25},
    }
)


def test_a_trace_shows_each_task_with_its_attempt() -> None:
    done, killed, cached, aborted = read_nextflow(TRACE)

    assert done.name == "ALIGN"
    assert (done.wall_time, done.memory) == (3 * 3600 + 121, round(1.2 * GIB))
    assert (done.memory_asked, done.cpu_time) == (4 * GIB, round(3.905 * 10921, 3))
    assert (killed.state, killed.memory, killed.wall_time) == (
        "OUT_OF_MEMORY",
        None,
        0.25,
    )
    assert cached.problem is not None
    assert aborted.state == "CANCELLED"
    assert done.interval is None  # the kernel's own peak


def test_a_raw_trace_is_of_bytes_and_milliseconds() -> None:
    (task,) = read_nextflow(RAW)

    assert (task.name, task.wall_time, task.memory) == (
        "NFCORE:ALIGN",
        7321.5,
        1288490189,
    )
    assert (task.started, task.cpus) == (1767261600, 4)


def test_a_benchmark_is_sampled_and_its_table_has_no_rule() -> None:
    long, short = read_snakemake(BENCHMARK, "align")

    assert (long.name, long.memory, long.cpu_time) == (
        "align",
        round(450.25 * MIB),
        94.1,
    )
    assert (long.looks, long.interval) == (31 + 2, 30.0)  # 15.5 s, and 80 s
    assert (short.memory, short.looks) == (None, 0)


def test_json_lines_of_a_benchmark_have_rule_request_and_sizes() -> None:
    (one,) = read_snakemake(LINES + "\n", "other")

    assert (one.name, one.cpus, one.memory_asked) == ("align", 4, 1908 * MIB)
    assert one.parameters == {"input_size_mb": 120.75, "sample": "s1", "k": 31}


@pytest.mark.parametrize("text", [TRACE, RAW, BENCHMARK, LINES])
def test_a_file_is_recognised_by_what_is_in_it(text: str) -> None:
    kinds = [is_form(text) for is_form in (is_nextflow, is_snakemake)]

    assert kinds.count(True) == 1


@pytest.mark.parametrize(
    "text", ["", "{", "{}", "a\tb\n1\t2\n", "[1]", '{"execution_summary": 3}', "\0\xff"]
)
def test_other_texts_are_none_of_them(text: str) -> None:
    assert not any(is_form(text) for is_form in (is_nextflow, is_snakemake))


def test_a_trace_that_is_still_written_gives_no_other_figure() -> None:
    whole = {one.text: one for one in read_nextflow(TRACE)}

    for end in range(len(COLUMNS) + len("\tmemory\n") + 1, len(TRACE), 7):
        for one in read_nextflow(TRACE[:end]):
            assert one.problem or one == whole[one.text]


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("1d 2h", 93600),
        ("59.9s", 59.9),
        ("1m 0.5s", 60.5),
        ("1500", 1.5),
        ("0ms", 0),
    ],
)
def test_each_way_to_write_a_time(text: str, seconds: float) -> None:
    (one,) = read_nextflow(RAW.replace("7321500", text))

    if seconds:
        assert one.wall_time == pytest.approx(seconds)
    else:
        assert one.problem


@pytest.mark.parametrize(
    ("text", "size"),
    [("512 B", 512), ("1.5 KB", 1536), ("2 TB", 2048 * GIB), ("-", None), ("NA", None)],
)
def test_each_way_to_write_a_size(text: str, size: int | None) -> None:
    (one,) = read_nextflow(RAW.replace("1288490189", text))

    assert one.memory == size
