import subprocess
from pathlib import Path
from tempfile import TemporaryDirectory

from hypothesis import given
from hypothesis import strategies as st
from sessions import check_session

from weigh.errors import WeighError
from weigh.flow.sweep.stages import SweepStep, read_stages


def steps_of(text: str, start: str = "") -> tuple[SweepStep, ...]:
    with TemporaryDirectory() as folder:
        path = Path(folder) / "stages.toml"
        path.write_text(text)
        return read_stages(f"{path}{start}")


@given(
    st.lists(
        st.text(st.characters(exclude_characters="\0", codec="utf-8")),
        min_size=1,
        max_size=3,
    )
)
def test_words_reach_the_program_as_they_stand(words: list[str]) -> None:
    argv = ["printf", "%s\\0", *words]
    text = ", ".join('"' + "".join(f"\\U{ord(c):08x}" for c in w) + '"' for w in argv)
    (stage,) = steps_of(f'[[stage]]\nname = "a"\nrun = [{text}]')
    out = subprocess.run(["bash", "-c", stage.line], check=True, capture_output=True)
    assert out.stdout.decode().split("\0")[:-1] == words


def test_worked_examples_of_steps() -> None:
    names = {"steps_of": steps_of, "WeighError": WeighError}
    check_session(Path(__file__).with_name("steps.session"), names)
