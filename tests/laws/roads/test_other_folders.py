"""Plans that are replaced, submitted from another folder, or renamed."""

from roads import Road


def test_the_tasks_of_a_plan_run_where_it_was_made(road: Road) -> None:
    road.program()
    road("sweep", "x=1..3", "--", "python3", "job.py", "--x", "{x}")
    road("plan", "tasks.txt", "--memory", "150M", "--time", "1m")
    road("run", "-q", "--", "true")  # the store, for both folders
    (road.folder / "elsewhere").mkdir()
    words = ("submit", "../plan/tasks", "--on", road.scheduler)
    code, text = road.called(*words, cwd=road.folder / "elsewhere")
    assert code == 0, text
    assert f"the tasks run in {road.folder}, as planned" in " ".join(text.split())
    assert road.wait() == {"COMPLETED": 3}


def test_a_plan_that_replaces_a_submitted_one_names_how_to_run_it(road: Road) -> None:
    road.program()
    for tasks, again in ((1, ""), (2, " --again")):
        sweep = ("sweep", f"x=1..{tasks}", "-o", f"{tasks}.txt")
        road(*sweep, "--", "python3", "job.py", "--x", "{x}")
        options = ("--memory", "150M", "--time", "1m", "--name", "r", "--replace")
        said = road("plan", f"{tasks}.txt", *options)
        assert f"  next: weigh submit plan/r{again}\n" in said
        road.submit("plan/r", *again.split())
        assert road.wait("r") == {"COMPLETED": tasks}
