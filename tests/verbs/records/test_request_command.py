import json
from collections.abc import Callable
from pathlib import Path

import msgspec
import pytest
from called_weigh import called_here, work_alone_in

from weigh.model.record import PeakMemory, Record, SampleSeries, Usage
from weigh.store import identity, shards
from weigh.units import MIB

Weigh = Callable[..., tuple[int, str, str]]

LINES = "#SBATCH --mem=480M\n#SBATCH --cpus-per-task=1\n#SBATCH --time=00:05:00\n"
PEAK = PeakMemory(
    value=392 * MIB,
    low=390 * MIB,
    high=401 * MIB,
    anonymous=None,
    shared=None,
    file=None,
    source="test",
)
TAG = Record(
    id="7f3a91c0ffee",
    label="tag",
    command=("python", "tag.py"),
    started="2026-11-21T10:00:00Z",
    state="COMPLETED",
    usage=Usage(
        wall_time=12.4, cpus_used=0.96, peak_memory=PEAK, virtual_memory=970 * MIB
    ),
)


@pytest.fixture
def keep(tmp_path: Path) -> Callable[[Record], None]:
    def keep_it(record: Record) -> None:
        shards.append_record(str(tmp_path / ".weigh"), record, identity.this_machine())

    return keep_it


@pytest.fixture
def weigh(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    keep: Callable[[Record], None],
) -> Weigh:
    """``weigh`` in a folder with one record, no scheduler and no settings."""
    keep(TAG)
    work_alone_in(tmp_path, monkeypatch)

    return called_here(capsys)


def test_the_last_record_is_requested_on_stdout(weigh: Weigh) -> None:
    code, out, _ = weigh("request")

    assert (code, out) == (0, LINES)


def test_of_a_client_of_a_daemon_there_is_no_request(
    weigh: Weigh, keep: Callable[[Record], None]
) -> None:
    usage = Usage(wall_time=60.0, cpu_time=0.2)
    docker = msgspec.structs.replace(
        TAG, id="0000d0c4e500", command=("docker", "run", "img"), usage=usage
    )
    keep(docker)
    code, out, err = weigh("request", "0000d0")
    assert (code, out) == (2, "")
    assert "docker handed the work to a daemon, which was not measured" in err


def test_notes_go_to_stderr_as_comments_of_a_shell(weigh: Weigh) -> None:
    _, _, err = weigh("request")

    assert err.startswith("# from 1 run + 20 %")
    assert all(line.startswith("# ") for line in err.splitlines())


@pytest.mark.parametrize("name", ["tag", "7f3a91", "7f3a91c0ffee", "last"])
def test_a_record_answers_to_each_of_its_names(weigh: Weigh, name: str) -> None:
    assert weigh("request", name)[:2] == (0, LINES)


def test_a_record_in_a_file_is_read(weigh: Weigh, tmp_path: Path) -> None:
    (tmp_path / "tag.json").write_bytes(msgspec.json.encode(TAG))

    assert weigh("request", "tag.json")[:2] == (0, LINES)


def test_a_record_named_twice_is_one_run(weigh: Weigh) -> None:
    _, _, err = weigh("request", "tag", "last")

    assert "from 1 run" in err


def test_of_several_records_the_biggest_counts(
    weigh: Weigh, keep: Callable[[Record], None]
) -> None:
    keep(
        msgspec.structs.replace(
            TAG,
            id="abad1deacafe",
            label="big",
            usage=Usage(wall_time=4000.0, max_process_memory=4000 * MIB),
        )
    )

    _, out, err = weigh("request", "tag", "big")

    assert "--mem=4800M" in out
    assert "--time=01:30:00" in out
    assert "from 2 runs" in err


def test_grid_engine_is_written_where_requested(weigh: Weigh) -> None:
    assert weigh("request", "--for", "gridengine")[:2] == (
        0,
        "#$ -l h_vmem=1180M\n#$ -l h_rt=00:05:00\n",
    )


def test_grid_engine_is_the_default_where_only_its_commands_are(
    weigh: Weigh, tmp_path: Path
) -> None:
    (tmp_path / "bin").mkdir()
    qsub = tmp_path / "bin" / "qsub"
    qsub.touch(mode=0o755)

    assert weigh("request")[1].startswith("#$ -l h_vmem")
    assert weigh("request", "--for", "flags")[1].startswith("-l h_vmem")


def test_flags_are_one_line_to_hand_to_sbatch(weigh: Weigh) -> None:
    _, out, _ = weigh("request", "--for", "flags")

    assert out == "--mem=480M --cpus-per-task=1 --time=00:05:00\n"


def test_json_is_one_document_and_stderr_stays_empty(weigh: Weigh) -> None:
    _, out, err = weigh("request", "--for", "json")

    document = json.loads(out)
    assert document["schema"] == "weigh.request/1"
    assert document["records"] == ["7f3a91c0ffee"]
    assert document["notes"]
    assert err == ""


@pytest.mark.parametrize("text", ["100%", "1"])
def test_headroom_is_added_to_the_biggest_use(weigh: Weigh, text: str) -> None:
    assert "--mem=790M" in weigh("request", "--headroom", text)[1]


def test_headroom_comes_from_the_settings_where_no_flag_states_it(
    weigh: Weigh, tmp_path: Path
) -> None:
    (tmp_path / "weigh.toml").write_text("headroom = 1")

    assert "--mem=790M" in weigh("request")[1]
    assert "--mem=480M" in weigh("request", "--headroom", "20%")[1]


def test_a_setting_that_is_off_names_its_file(weigh: Weigh, tmp_path: Path) -> None:
    (tmp_path / "weigh.toml").write_text("headroom = 'much'")

    code, out, err = weigh("request")

    assert (code, out) == (2, "")
    assert f"{tmp_path / 'weigh.toml'}: not a headroom: 'much'" in err


def test_an_unknown_setting_is_one_warning(weigh: Weigh, tmp_path: Path) -> None:
    (tmp_path / "weigh.toml").write_text("headrom = 1")

    code, out, err = weigh("request")

    assert (code, out) == (0, LINES)
    assert "unknown key 'headrom' (did you mean headroom?)" in err.splitlines()[0]


def test_a_run_that_was_not_measured_for_h_vmem_is_reported(
    weigh: Weigh, keep: Callable[[Record], None]
) -> None:
    keep(
        msgspec.structs.replace(
            TAG, id="abad1deacafe", label="bare", usage=Usage(wall_time=1.0)
        )
    )

    _, out, err = weigh("request", "--for", "gridengine", "bare")

    assert "h_vmem" not in out
    assert "virtual size was not measured" in err


@pytest.mark.parametrize(
    ("argv", "says"),
    [
        (["nosuch"], "no record called 'nosuch'"),
        (["tagg"], "did you mean tag"),
        (["--headroom", "-20%"], "not a headroom: '-20%'"),
        (["--headroom", "20"], "write 20% or 0.2"),
        (["--headroom", "nan"], "not a headroom"),
        (["--headroom", "2000%"], "at most 1000%"),
        (["--for", "pbs"], "slurm"),
        (["--nosuch"], "no such option"),
    ],
)
def test_a_mistake_is_one_line_on_stderr_and_exit_code_2(
    weigh: Weigh, argv: list[str], says: str
) -> None:
    code, out, err = weigh("request", *argv)

    assert (code, out) == (2, "")
    assert says.lower() in err.lower()
    assert err.count("\n") == 1


def test_with_no_record_at_all_the_way_out_is_named(
    weigh: Weigh, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("WEIGH_DIR", str(tmp_path / "empty"))

    code, _, err = weigh("request")

    assert code == 2
    assert "weigh run" in err


def test_a_cpu_run_is_no_measure_of_gpu_memory(weigh: Weigh) -> None:
    _, out, err = weigh("request")

    assert "gres" not in out
    assert "no GPU was used" in err


# The full length of the job


def rising(name: str) -> Record:
    """Give a run of 100 s that held 100 MiB and 1 MiB a second more."""
    times = tuple(float(second) for second in range(101))
    memory = tuple(round((100 + time) * MIB) for time in times)
    peak = PeakMemory(memory[-1], memory[-1], memory[-1], None, None, None, "test")
    return msgspec.structs.replace(
        TAG,
        id="8a3a91c0ffee",
        label=name,
        usage=Usage(wall_time=100.0, peak_memory=peak, growing=True),
        series=SampleSeries(t=times, memory=memory),
    )


def test_rising_memory_is_carried_on_to_all_steps(
    weigh: Weigh, keep: Callable[[Record], None]
) -> None:
    keep(rising("leak"))
    code, out, err = weigh("request", "leak", "--steps", "1000", "--done", "100")
    assert (code, out.splitlines()[0]) == (0, "#SBATCH --mem=1320M")
    assert "memory rises by 1.00 MiB/s" in err.replace("\n#   ", " ")


def test_steps_that_nobody_counted_are_requested(weigh: Weigh) -> None:
    code, out, err = weigh("request", "tag", "--steps", "1000")
    assert (code, out) == (2, "")
    assert "measure again" in err or "--done N" in err
