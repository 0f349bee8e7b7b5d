"""``weigh exec`` from end to end: real tasks, real files."""

import json
import os
import sys

import pytest
from batches import Batch


def test_every_task_runs_once_and_stands_in_the_joblog(batch: Batch) -> None:
    batch.write(*(f"echo {n} >> ran" for n in range(1, 21)))
    assert batch.run("-j", "3").returncode == 0
    assert sorted(map(int, batch.ran())) == list(range(1, 21))
    assert batch.ended() == dict.fromkeys(range(1, 21), (0, 0))


def test_what_a_task_prints_is_in_its_file_and_silent_ones_have_none(
    batch: Batch,
) -> None:
    batch.write("echo out; echo err >&2", "true", "echo third")
    batch.run("-j", "1")
    assert sorted(os.listdir(batch.output)) == ["1.out", "3.out"]
    assert (batch.output / "1.out").read_text() == "out\nerr\n"
    assert (batch.output / "3.out").read_text() == "third\n"


def test_exit_codes_and_signals_are_distinguished(batch: Batch) -> None:
    batch.write("exit 3", "kill -TERM $$", "true")
    finished = batch.run("-j", "1")
    assert finished.returncode == 1
    assert batch.ended() == {1: (3, 0), 2: (0, 15), 3: (0, 0)}
    assert "1 of 3 tasks done, 2 failed" in finished.stdout


def test_a_task_knows_its_number_and_slot(batch: Batch) -> None:
    batch.write(*["echo $PARALLEL_SEQ $PARALLEL_JOBSLOT $WEIGH_SLOT >> ran"] * 3)
    batch.run("-j", "1")
    assert batch.ran() == ["1", "1", "1", "2", "1", "1", "3", "1", "1"]


def test_a_line_needs_no_shell_or_gets_bash(batch: Batch) -> None:
    batch.write(f"{sys.executable} -c 'print(1)'", "[[ a == a ]] && echo $BASH")
    batch.run()
    assert (batch.output / "1.out").read_text() == "1\n"
    assert (batch.output / "2.out").read_text().endswith("bash\n")
    assert batch.record(1)["command"] == [sys.executable, "-c", "print(1)"]
    assert batch.record(2)["command"][:2] == ["bash", "-c"]


def test_a_missing_program_fails_as_in_a_shell(batch: Batch) -> None:
    batch.write("no-such-program-at-all")
    assert batch.run().returncode == 1
    assert batch.ended() == {1: (127, 0)}
    assert "no-such-program-at-all" in (batch.output / "1.out").read_text()


def test_tasks_read_nothing_from_the_terminal_or_pipe(batch: Batch) -> None:
    batch.write("cat; echo end >> ran")
    batch.run()
    assert batch.ran() == ["end"]


def test_each_task_has_a_record_of_what_it_used(batch: Batch) -> None:
    hold = "a = bytearray(60 << 20); sum(range(9**6)); import time; time.sleep(0.3)"
    batch.write(f'{sys.executable} -c "{hold}"', "true")
    batch.run("-j", "2")
    big, small = batch.record(1), batch.record(2)
    assert (big["state"], big["exit_code"]) == ("COMPLETED", 0)
    assert 60 << 20 < big["usage"]["peak_memory"]["value"] < 90 << 20
    assert big["usage"]["wall_time"] > 0.3
    assert (big["job"]["task"], big["job"]["attempt"]) == (1, 1)
    assert small["usage"]["peak_memory"]["source"] == "launcher floor"


def test_resume_leaves_failed_tasks_and_resume_failed_runs_them(batch: Batch) -> None:
    batch.write("echo a >> ran; [ -e ok ]", "echo b >> ran")
    batch.run("-j", "1")
    (batch.folder / "ok").touch()
    assert batch.run().returncode == 1
    assert batch.ran() == ["a", "b"]
    assert batch.run("--resume-failed").returncode == 0
    assert batch.ran() == ["a", "b", "a"]
    assert batch.events_of("started")[-1]["attempt"] == 2


def test_an_edited_task_file_reruns_what_changed_and_nothing_else(
    batch: Batch,
) -> None:
    batch.write("echo a >> ran", "echo b >> ran", "echo c >> ran")
    batch.run("-j", "1")
    batch.write("echo new >> ran", "echo a >> ran", "echo B >> ran", "echo c >> ran")
    assert batch.run("-j", "1").returncode == 0
    assert batch.ran() == ["a", "b", "c", "new", "B"]


def test_retries_are_tries_in_all(batch: Batch) -> None:
    batch.write("echo a >> ran; false", "echo b >> ran")
    assert batch.run("-j", "1", "--retries", "3").returncode == 1
    assert sorted(batch.ran()) == ["a", "a", "a", "b"]
    assert [entry.seq for entry in batch.entries()].count(1) == 1
    states = [
        event["attempt"] for event in batch.events_of("ended") if event["seq"] == 1
    ]
    assert states == [1, 2, 3]


def test_halt_now_kills_what_runs(batch: Batch) -> None:
    batch.write("sleep 100", "exit 7", "echo a >> ran")
    finished = batch.run("-j", "2", "--halt", "now,fail=1")
    assert finished.returncode == 7
    assert batch.ran() == []
    assert batch.ended() == {2: (7, 0)}
    assert batch.marked() == []


def test_a_task_that_takes_too_long_is_ended_as_gnu_parallel_states(
    batch: Batch,
) -> None:
    batch.write("sleep 100", "true")
    assert batch.run("--timeout", "0.3").returncode == 1
    assert batch.ended() == {1: (-1, 15), 2: (0, 0)}
    assert batch.record(1)["state"] == "TIMEOUT"


@pytest.mark.integrations
def test_the_whole_time_of_a_task_that_was_stopped_is_estimated(batch: Batch) -> None:
    batch.write('for i in $(seq 200); do echo "step $i/200"; sleep 0.05; done')
    assert batch.run("--timeout", "5").returncode == 1
    (end,) = batch.events_of("ended")
    assert end["needs"] > 9  # seconds: the pauses alone are 10


def test_a_dry_run_prints_what_is_left_and_runs_nothing(batch: Batch) -> None:
    batch.write("echo a >> ran", "echo b >> ran")
    assert batch.run("--dry-run").stdout.splitlines() == [
        "1\techo a >> ran",
        "2\techo b >> ran",
        "2 of 2 tasks would run",
    ]
    assert os.listdir(batch.folder) == ["tasks.txt"]


def test_ungrouped_output_comes_through_at_once(batch: Batch) -> None:
    batch.write("echo out; echo err >&2")
    finished = batch.run("-u")
    assert finished.stdout == "out\n"
    assert "err\n" in finished.stderr
    assert not batch.output.exists()


def test_threads_of_numeric_libraries_follow_the_slots_share(batch: Batch) -> None:
    cpus = len(os.sched_getaffinity(0))
    batch.write("echo $OMP_NUM_THREADS $MKL_NUM_THREADS >> ran")
    batch.run("-j", "1")
    batch.run("-j", "1", "--no-resume", OMP_NUM_THREADS="7")
    words = batch.ran()
    assert words == [str(cpus), str(cpus), "7"]


@pytest.mark.skipif(len(os.sched_getaffinity(0)) < 2, reason="one core only")
def test_slots_have_disjoint_cores(batch: Batch) -> None:
    cores = "' '.join(map(str, os.sched_getaffinity(0)))"
    show = f"import os, sys; sys.stdout.write({cores} + chr(10))"
    line = f'{sys.executable} -c "{show}" >> ran; sleep 0.2'
    batch.write(line, line)
    batch.run("-j", "2")
    lines = (batch.folder / "ran").read_text().splitlines()
    first, second = (set(line.split()) for line in lines)
    assert first
    assert second
    assert not first & second


def test_the_result_can_be_read_by_a_program(batch: Batch) -> None:
    batch.write("true", "false")
    finished = batch.run("--json")
    result = json.loads(finished.stdout)
    assert result["schema"] == "weigh.exec/1"
    assert (result["tasks"], result["done"], result["failed"]) == (2, 1, 1)


def test_gpus_are_shared_out_among_the_slots(batch: Batch) -> None:
    batch.write(*["echo $WEIGH_SLOT $CUDA_VISIBLE_DEVICES >> ran; sleep 0.3"] * 4)
    batch.run("--per-gpu", "2", CUDA_VISIBLE_DEVICES="3,5")
    lines = sorted((batch.folder / "ran").read_text().splitlines())
    assert lines == ["1 3", "2 5", "3 3", "4 5"]


def test_phases_of_a_program_are_in_the_record_of_its_task(
    batch: Batch,
) -> None:
    for name in ("load", "train"):
        program = f"import weigh\nwith weigh.phase({name!r}):\n    pass\n"
        (batch.folder / f"{name}.py").write_text(program)
    batch.write(*(f"{sys.executable} {name}.py" for name in ("load", "train", "load")))
    batch.run("-j", "1")
    phases = [[p["name"] for p in batch.record(task)["phases"]] for task in (1, 2, 3)]
    assert phases == [["load"], ["train"], ["load"]]


def test_a_sweeps_parameters_are_in_the_records(batch: Batch) -> None:
    batch.write("echo 1e-2 a", "echo 3 'b c'", "echo new")
    table = "Seq\tlr\tname\tCommand\n1\t1e-2\ta\techo 1e-2 a\n2\t3\tb c\techo 3 'b c'\n"
    (batch.folder / "tasks.tsv").write_text(f"{table}3\t4\td\techo old\n")
    batch.run("-j", "1")
    parameters = [batch.record(task)["parameters"] for task in (1, 2, 3)]
    assert parameters == [{"lr": 0.01, "name": "a"}, {"lr": 3, "name": "b c"}, {}]


def test_a_task_that_prints_a_traceback_and_exits_with_0_is_named(batch: Batch) -> None:
    fails = f"{sys.executable} -c 'raise ValueError(\"no column x\")'"
    batch.write("echo fine", f"{fails} 2>&1 | tee log", f"{fails}; echo done")
    finished = batch.run()
    assert finished.returncode == 0
    words = "2 tasks, the first is task 2, ended with 0, yet the output ends in: "
    assert f"{words}ValueError: no column x" in finished.stderr
    assert batch.record(2)["outcome"]["evidence"] == ["ValueError: no column x"]


def test_a_traceback_that_a_task_handled_is_not_its_end(batch: Batch) -> None:
    handled = (
        "import traceback\ntry: 1 / 0\nexcept ArithmeticError: traceback.print_exc()"
    )
    (batch.folder / "a.py").write_text(f"{handled}\nfor n in range(9): print(n)\n")
    batch.write(f"{sys.executable} a.py")
    assert "yet the output ends in" not in batch.run().stderr
