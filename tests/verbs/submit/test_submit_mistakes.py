"""All that ``weigh submit``, and verbs on the same files, print of a mistake."""

from pathlib import Path

from following import Weigh
from transcript import check_transcript, file_writer


def test_a_mistake_is_one_line_with_the_way_out(here: Weigh) -> None:
    here.plan("true", name="sweep")
    script = here("submit", "plan/sweep", "--on", "slurm", "--dry-run")[1]
    (here.folder / "plan/sweep/job.sh").write_text(script)
    path = Path(__file__).with_name("mistakes.transcript")
    masks = {str(here.folder): "FOLDER"}

    check_transcript(path, here, masks, file_writer(here.folder))

    mistakes = path.read_text().split("\n$ weigh ")[1:]
    assert all(one.count("\n2> ") == one.count("\n[") == 1 for one in mistakes)
    there = {one.name for one in here.folder.iterdir()}
    assert not there & {".weigh", "ran", "tasks.txt.joblog"}
    assert [one.name for one in (here.folder / "plan").iterdir()] == ["sweep"]
