"""Each check of ``weigh doctor``: what it finds, and the cure that it names."""

import sys
from collections.abc import Iterable
from pathlib import Path

import msgspec
import pytest
from sessions import check_session

from weigh.flow import doctor
from weigh.flow.here import here_of
from weigh.model.doctor import DiskSpace, DoctorCheck, DoctorDiagnosis
from weigh.render.doctor_lines import doctor_document, doctor_page
from weigh.units import GIB

SHARED = DiskSpace(
    path="/nowhere/ann",
    kind="nfs4",
    is_shared=True,
    size=1000 * GIB,
    free=500 * GIB,
    files_free=10**5,
    writable=True,
)


def test_worked_examples_of_checks(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("sbatch", "sinfo"):
        (tmp_path / name).touch(mode=0o755)
    monkeypatch.setattr(doctor, "gpu_may_be_present", lambda _env: False)

    def disk(**changed: object) -> None:
        """Let every folder be on this disk."""
        made = msgspec.structs.replace(SHARED, **changed)
        monkeypatch.setattr(doctor, "read_disk", lambda *_: made)

    def show(checks: Iterable[DoctorCheck]) -> None:
        for one in checks:
            fix = f"\n    -> {one.cure}" if one.cure else ""
            text = f"{one.state} {one.name}: {one.text}{fix}"
            text = text.replace(str(tmp_path), "FOLDER")
            print(text.replace(sys.executable, "PYTHON"))

    names = {"folder": tmp_path, "patch": monkeypatch, "disk": disk, "show": show}
    check_session(Path(__file__).with_name("doctor_checks.session"), names)


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
    check = DoctorCheck("home", "warning", f"{path} cannot be written", "another one")
    lines = doctor_page(DoctorDiagnosis(host="h", checks=(check,)))
    assert any(path in line for line in lines)


def test_the_page_has_a_fix_below_its_check_and_those_of_a_job_last() -> None:
    fine = DoctorCheck("GPU", "ok", "none")
    full = DoctorCheck("home", "broken", "0 B left", "delete")
    diagnosis = DoctorDiagnosis(host="h", checks=(fine, full), job=(fine,))
    assert doctor_page(diagnosis) == [
        "  weigh doctor on h",
        "  ok       GPU   none",
        "  BROKEN   home  0 B left",
        "                 -> delete",
        "",
        "  before a job is submitted",
        "  [x]      GPU   none",
        "",
        "  1 broken",
    ]


def test_the_document_states_its_schema_and_whether_something_is_broken() -> None:
    text = doctor_document(DoctorDiagnosis(host="h", checks=()))
    document = msgspec.json.decode(text)
    assert (document["schema"], document["broken"]) == ("weigh.doctor/1", False)
