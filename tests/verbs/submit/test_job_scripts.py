"""The job scripts: as they should look, and what bash makes of any name in them."""

import re
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest
from following import Weigh
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace
from rigs import EACH_KIND
from sessions import check_session
from transcript import check_texts, differences

from weigh.errors import UsageError
from weigh.model.job import JobRequest, JobScript, JobSetup
from weigh.model.staging import StagingPlan
from weigh.schedulers import KINDS
from weigh.schedulers.job_script import program_checks, staged_lines, when_home
from weigh.schedulers.this_machine import local_script
from weigh.units import GIB, HOUR

PREFIXES = tuple(f"{kind.text.PREFIX} " for kind in KINDS.values() if kind.text.PREFIX)
Render = Callable[[JobScript], str]
RENDER: dict[str, Render] = {
    **{name: kind.backend.render for name, kind in KINDS.items()},
    "local": local_script,
}
WANTED = JobRequest(
    cpus=4,
    memory=8 * GIB,
    virtual_memory=40 * GIB,
    time_limit=6 * HOUR,
    gpus=1,
    gpu_type="p100",
    queue="gpu_long",
    account="def-lab",
    mail="me@uni.edu",
    throttle=3,
    after=("41", "42"),
    exclude=("node07",),
)
PLAIN = JobScript(
    name="ppo-sweep",
    folder="/home/me/rl/plan/ppo-sweep",
    cwd="/home/me/rl",
    store="/home/me/rl/.weigh",
    python="/home/me/env/bin/python",
    elements=25,
    together=4,
    request=WANTED,
    setup=JobSetup(modules=("cuda/12",), conda="rl", lines=("export A=1",)),
    programs=("ffmpeg",),
    version="1.0",
)
NAMES = st.text(
    st.characters(exclude_characters="\0/", exclude_categories=["Cs"]), min_size=1
)


def a_script(**changes: object) -> JobScript:
    return replace(PLAIN, **changes)


def directives(text: str) -> list[str]:
    return [line for line in text.splitlines() if line.startswith(PREFIXES)]


def test_the_scripts_look_as_they_did() -> None:
    script = a_script(needs=("w0123456789ab", "42"), imports_torch=True)
    order = ["slurm", *sorted({*RENDER} - {"slurm"})]
    texts = {name: RENDER[name](script) for name in order}

    check_texts(Path(__file__).with_name("scripts.texts"), differences(texts))


@pytest.mark.parametrize("name", sorted(RENDER))
@given(folder=NAMES, store=NAMES, venv=NAMES, program=NAMES)
@settings(max_examples=25)
def test_bash_reads_every_name_back_as_it_is(
    name: str, folder: str, store: str, venv: str, program: str
) -> None:
    script = a_script(
        folder=f"/{folder}",
        store=f"/{store}",
        cwd=f"/{program}",
        setup=JobSetup(venv=f"/{venv}"),
        programs=(program,),
        request=JobRequest(),
    )
    shows = (
        'exec 3>&1; show() { printf "%s\\0" "$@" >&3; }; '
        'cd() { show "$1"; }; source() { show "$1"; }; command() { show "$2"; }; '
        "python() { :; }; exec() { :; }; "
        'trap() { show "$WEIGH_DIR" "$plan"; exit; }\n'
    )
    text = RENDER[name](script).replace("trap 'echo", ": 'echo", 1)

    seen = subprocess.run(
        ["bash", "-c", shows + text], capture_output=True, check=False, timeout=20
    )

    expected = [f"/{program}", f"/{venv}/bin/activate", program]
    expected += [f"/{store}", f"/{folder}"]
    assert (
        seen.stdout.decode("utf-8", "surrogateescape").split("\0")[: len(expected)]
        == expected
    )


@EACH_KIND
@given(label=NAMES, folder=NAMES)
def test_no_name_breaks_out_of_its_directive(
    name: str, label: str, folder: str
) -> None:
    plain = directives(RENDER[name](PLAIN))

    odd = directives(RENDER[name](a_script(name=label, folder=f"/{folder}")))

    assert len(odd) == len(plain)
    assert odd[5:] == plain[5:]


def exec_words(text: str, env: dict[str, str]) -> list[str]:
    """Return the words that bash hands to weigh exec."""
    (command,) = re.findall(r"^.* -m weigh exec (?:.*\\\n)*.* &$", text, re.MULTILINE)
    shows = f"show() {{ printf '%s\\n' \"$@\"; }}; show {command.removesuffix(' &')}"
    run = subprocess.run(
        ["bash", "-c", shows], env=env, capture_output=True, check=True, timeout=20
    )
    return run.stdout.decode().splitlines()


STAGED = StagingPlan(destination="/home/me/out", warn_time=120, grace=10)


def is_bash(text: str) -> bool:
    read = ["bash", "-n", "-c", text]
    return subprocess.run(read, check=False, timeout=20).returncode == 0


def staged(**changes: object) -> JobScript:
    script = a_script(staging=STAGED, **changes)
    tasks = staged_lines(script, KINDS["slurm"].backend.RULES)
    lines = f"staged() {{\n{tasks}\n}}\nhome() {{\n{when_home()}\n}}\n"
    return a_script(staging=STAGED, **changes | {"staged": lines})


@pytest.mark.parametrize("name", RENDER)
@pytest.mark.parametrize("container", [None, "images/my env.sif"])
def test_bash_reads_a_script_that_stages_or_goes_back_into_its_queue(
    name: str, container: str | None
) -> None:
    setup = JobSetup(container=container)
    assert is_bash(RENDER[name](a_script(requeue=True, setup=setup)))
    script = staged(setup=setup, programs=("python", "bin/tag", "/opt/ffmpeg"))

    text = RENDER[name](script)

    assert is_bash(text)
    assert text.count("staged() {") == 1


@EACH_KIND
@pytest.mark.parametrize("word", ["a\nb", 'a"b', "a\\b"])
def test_a_queue_or_node_that_no_directive_can_hold_is_refused(
    name: str, word: str
) -> None:
    request = JobRequest(queue=word, exclude=(word,))
    with pytest.raises(UsageError, match="cannot hold"):
        RENDER[name](a_script(request=request))


def test_a_value_behind_an_equals_sign_is_that_of_the_option(here: Weigh) -> None:
    given = {"time": "2h", "memory": "2G", "cpus": "3", "account": "us", "name": "b"}
    words = ("submit", here.plan("true"), "--on", "slurm", "--dry-run")
    apart = here(*words, *(one for k, v in given.items() for one in (f"--{k}", v)))
    assert apart[0] == 0
    assert here(*words, *(f"--{k}={v}" for k, v in given.items())) == apart
    assert apart != here(*words)


def test_worked_examples_of_lines() -> None:
    names = {"RENDER": RENDER, "STAGED": STAGED, "exec_words": exec_words}
    names |= {"a_script": a_script, "staged": staged, "program_checks": program_checks}
    check_session(Path(__file__).with_name("scripts.session"), names)
