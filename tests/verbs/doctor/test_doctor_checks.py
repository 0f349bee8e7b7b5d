"""Each check of ``weigh doctor``: what it finds, and the cure that it names."""

import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from types import SimpleNamespace

import msgspec
import pytest
from transcript import check_texts

from weigh.flow import doctor
from weigh.flow.here import here_of
from weigh.model.doctor import (
    DiskSpace,
    DoctorCheck,
    DoctorDiagnosis,
    PythonEnvironment,
    TorchBuild,
)
from weigh.probe import nvml
from weigh.render.doctor_lines import doctor_document, doctor_page
from weigh.schedulers.command import CommandOutput
from weigh.units import GIB, MIB

Look = Callable[[], list[DoctorCheck]]
CPU_BUILD = TorchBuild("2.4.0+cpu")
CPU_TORCH = PythonEnvironment(kind="conda", prefix="/envs/a", name="a", torch=CPU_BUILD)
SHARED = DiskSpace(
    path="/nowhere/ann",
    kind="nfs4",
    is_shared=True,
    size=1000 * GIB,
    free=500 * GIB,
    files_free=10**5,
    writable=True,
)
# of git status --porcelain=v2 --branch
COMMIT = "# branch.oid 1\n"
BRANCH = f"{COMMIT}# branch.upstream origin/main\n# branch.ab "


def answers(reply: CommandOutput) -> Callable[..., CommandOutput]:
    return lambda *_, **__: reply


def unless_grid_engine(argv: Sequence[str], **_: object) -> CommandOutput:
    unset = "critical error: Please set the environment variable SGE_ROOT."
    return CommandOutput(*((1, "", unset) if argv[0][0] == "q" else (0, "", "")))


class Situations:
    """What each check reports, as lines, by the name of a situation."""

    def __init__(self, folder: Path, patch: pytest.MonkeyPatch) -> None:
        self.patch, self.texts = patch, dict[str, str]()
        for name in ("sbatch", "sinfo"):
            (folder / name).touch(mode=0o755)
        self.folder, self.login = folder, {"PATH": str(folder)}

    def disk(self, **changed: object) -> None:
        """Let every folder be on this disk."""
        disk = msgspec.structs.replace(SHARED, **changed)
        self.patch.setattr(doctor, "read_disk", lambda *_: disk)

    def add(self, name: str, checks: Sequence[DoctorCheck]) -> None:
        lines = (
            f"{one.state:8} {one.name}: {one.text}\n"
            + (f"         -> {one.cure}\n" if one.cure else "")
            for one in checks
        )
        self.texts[name] = "".join(lines).replace(sys.executable, "PYTHON")

    # the checks

    def schedulers(self) -> None:
        down = CommandOutput(trouble="Unable to contact slurm controller")
        fine = CommandOutput(0, "", "")
        check = doctor.scheduler_checks
        self.add("Slurm is down", check(self.login, answers(down)))
        self.add("commands of Slurm are missing", check(self.login, answers(fine)))
        self.add("no scheduler", check({"PATH": ""}, answers(fine)))
        for name in ("qsub", "qstat", "scontrol", "squeue", "sacct", "scancel", "srun"):
            (self.folder / name).touch(mode=0o755)
        self.add(
            "Grid Engine is installed, and has no cluster",
            check(self.login, unless_grid_engine),
        )

    def nodes(self) -> None:
        self.disk()
        self.add("a Python on the shared disk", doctor.nodes_checks(self.login))
        self.add("a Python where no nodes are", doctor.nodes_checks({"PATH": ""}))
        in_job = self.login | {"SLURM_JOB_ID": "7"}
        self.add("a Python in a job", doctor.nodes_checks(in_job))
        self.disk(is_shared=False, kind="ext4")
        self.add("a Python that nodes may lack", doctor.nodes_checks(self.login))

    def environments(self) -> None:
        self.add("no python", doctor.environment_checks({"PATH": ""}))
        self.patch.setattr(doctor, "environment_of", lambda _python: CPU_TORCH)
        for active in (("CONDA_PREFIX",), ("CONDA_PREFIX", "VIRTUAL_ENV")):
            checks = doctor.environment_checks(dict.fromkeys(active, "/env"))
            self.add(f"python with {' and '.join(active)}", checks)
        for build in (CPU_BUILD, TorchBuild("2.4", "12.1"), TorchBuild("2", None, "6")):
            checks = [
                doctor.torch_check(CPU_TORCH, build, state)
                for state in ("ok", "warning", "broken")
            ]
            self.add(f"torch {build.version}, for a CPU build each state", checks)
        for kind in ("system", "conda", "venv"):
            found = PythonEnvironment(kind=kind, prefix="/p", name="a")
            self.texts[f"an environment of {kind}"] = doctor.environment_words(found)

    def disks(self) -> None:
        rows: dict[str, dict[str, object]] = {
            "room": {},
            "no byte": {"free": 0},
            "100 MiB": {"free": 100 * MIB},
            "9 GiB of 1000": {"free": 9 * GIB},
            "15 GiB of 1000, in which much fits": {"free": 15 * GIB},
            "9 GiB of 400": {"free": 9 * GIB, "size": 400 * GIB},
            "9 GiB of 500": {"free": 9 * GIB, "size": 500 * GIB},
            "999 files": {"files_free": 999},
            "1000 files": {"files_free": 1000},
            "files unknown": {"files_free": None},
            "read-only": {"writable": False},
            "hung": {"trouble": "has not answered for 10 s"},
        }
        # in which less may be broken: a job may still run without
        of_scratch = ("no byte", "100 MiB", "999 files", "hung")
        for role, names in (("home", rows), ("scratch", of_scratch)):
            for name in names:
                self.disk(**rows[name])
                checks = [doctor.disk_check(role, "/nowhere/ann")]
                self.add(f"{role} has {name}", checks)

    def records(self) -> None:
        here = here_of(str(self.folder), self.login)
        rows: dict[str, dict[str, object]] = {
            "shared": {},
            "read-only": {"writable": False},
            "memory": {"kind": "tmpfs", "is_shared": False},
            "a node's own": {"kind": "ext4", "is_shared": False},
        }
        for name, changed in rows.items():
            self.disk(**changed)
            self.add(f"records on a disk: {name}", doctor.records_checks(here))

    def settings(self) -> None:
        folder = self.folder / "project"
        folder.mkdir()
        variables = {"WEIGH_DIR": "/s", "WEIGH_HEADROM": "1", "WEIGH_QUIET": "1"}
        for name, text in {
            "as they should be": "",
            "that nobody reads": '[cluster]\nnmae = "x"\n',
            "that are invalid": "interval = -1\n",
        }.items():
            (folder / "weigh.toml").write_text(text)
            here = here_of(str(folder), variables if text else {})
            self.add(f"settings {name}", [*doctor.settings_checks(here)])
            shown = self.texts[f"settings {name}"].replace(str(folder), "FOLDER")
            self.texts[f"settings {name}"] = shown

    def signs(self) -> None:
        table = self.folder / "signs.toml"
        env = {"WEIGH_SIGNS": str(table)}
        for name, text in {
            "none": None,
            "an old key": '[[sign]]\nname = "x"\nadvice = "y"\nkind = "cache"\n',
            "read": '[[sign]]\nname = "x"\nadvice = "y"\n',
        }.items():
            if text is not None:
                table.write_text(text)
            self.add(f"signs: {name}", [*doctor.signs_checks(env)])
            self.texts[f"signs: {name}"] = self.texts[f"signs: {name}"].replace(
                str(table), "SIGNS"
            )

    def gpus(self) -> None:
        self.patch.setattr(doctor, "gpu_may_be_present", lambda _env: False)
        in_job = self.login | {"SLURM_JOB_ID": "7"}
        self.add("no GPU on a login node", doctor.gpu_checks(self.login))
        self.add("no GPU in a job", doctor.gpu_checks(in_job))
        self.patch.setattr(doctor, "gpu_may_be_present", lambda _env: True)
        version = ("550.1", "12.4")
        self.patch.setattr(nvml, "read_driver_version", lambda: version)
        for names, absence in (
            ([], None),
            ([], "the driver is older"),
            (["T4", "A100", "T4"], None),
        ):
            devices = [SimpleNamespace(name=name) for name in names]
            found = {"absence": absence, "close": list}
            probe = SimpleNamespace(devices=lambda devices=devices: devices, **found)
            self.patch.setattr(doctor, "open_probe", lambda _env, probe=probe: probe)
            checks = doctor.gpu_checks({"PATH": ""})
            self.add(f"GPUs {names}, absence {absence}", checks)

    def code(self) -> None:
        for name, status in {
            "pushed": f"{BRANCH}+0 -1\n",
            "not pushed": f"{BRANCH}+2 -0\n",
            "without upstream": COMMIT,
            "changed": f"{COMMIT}1 .M N... 100644 a b x y\n? new file\n",
            "new": "# branch.oid (initial)\n",
        }.items():
            self.add(f"code {name}", [doctor.code_check_of(status)])


def test_each_check_states_what_it_found_and_the_fix(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = Situations(tmp_path, monkeypatch)
    for add in (made.schedulers, made.nodes, made.environments, made.disks):
        add()
    for add in (made.records, made.settings, made.signs, made.gpus, made.code):
        add()
    check_texts(Path(__file__).with_name("doctor_checks.texts"), made.texts)


def test_a_disk_that_refuses_a_file_as_over_quota_is_broken(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(doctor, "read_disk", lambda *_: SHARED)
    with pytest.raises(OSError) as refused:  # noqa: PT011 - which, the kernel decides
        Path("/proc/self/a-file").touch()
    check = doctor.disk_check("home", "/proc/self")
    assert check.state == "broken"
    assert check.text.endswith(f" cannot be written: {refused.value.strerror}")
    here = here_of("/", {"PATH": "", "WEIGH_DIR": "/proc/self"})
    (check,) = doctor.records_checks(here)
    assert check.text.endswith(f": {refused.value.strerror}")


def test_no_line_of_the_page_is_wider_than_a_terminal_but_a_path_to_copy() -> None:
    words, path = "a rather long sentence about a disk, " * 4, "/" + "a" * 100
    checks = (
        DoctorCheck("home", "broken", words, words),
        DoctorCheck("GPU", "ok", "none"),
    )
    lines = doctor_page(DoctorDiagnosis(host="login3", checks=checks, job=checks))
    assert max(map(len, lines)) <= 80
    assert lines[-1] == "  2 broken"
    check = DoctorCheck("home", "warning", f"{path} cannot be written", "another one")
    lines = doctor_page(DoctorDiagnosis(host="h", checks=(check,)))
    assert any(path in line for line in lines)


def test_the_document_states_its_schema_and_whether_something_is_broken() -> None:
    text = doctor_document(DoctorDiagnosis(host="h", checks=()))
    document = msgspec.json.decode(text)
    assert (document["schema"], document["broken"]) == ("weigh.doctor/1", False)
