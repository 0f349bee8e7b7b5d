"""Run the scheduler tests against each version of each scheduler; write the table.

    python tools/matrix.py [--roots FOLDER] [--only NAME] [-- PYTEST_WORD...]

`make matrix` calls it. Each version runs in a Debian of its own (ci/matrix-root.sh),
which is made once and kept in FOLDER, in namespaces of its own (ci/isolated.sh). The
table goes into docs/schedulers.md; with --only, the rows of the other versions stay. A
version that cannot be installed is a row that says so. With words for pytest the page
stays as it is. The exit code is 1 if a test failed or a version is missing.
"""

import argparse
import datetime as dt
import os
import re
import subprocess
import sys
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from xml.etree import ElementTree as ET

ROOT = Path(__file__).parents[1]
PAGE = ROOT / "docs/schedulers.md"
BEGIN, END = "<!-- matrix: begin -->\n", "<!-- matrix: end -->\n"
COMMAND = "make matrix"
HEAD = (
    "| scheduler | from | tests | passed | skipped | failed | run on |\n"
    "|---|---|---|---|---|---|---|\n"
)
SLURM = ("munge", "slurmctld", "slurmd", "slurm-client", "slurmdbd", "mariadb-server")
GRID_ENGINE = ("gridengine-master", "gridengine-exec", "gridengine-client")
MASTERS = ("slurmctld", "gridengine-master", "minihtcondor")
TESTS = ("tests/verbs/submit", "tests/unit/schedulers", "tests/docs/test_docs_run.py")


@dataclass(frozen=True, slots=True)
class Version:
    """A scheduler as one release of Debian has it, and the packages to install."""

    scheduler: str
    series: str
    suite: str
    packages: tuple[str, ...]

    @property
    def name(self) -> str:
        """Return what ``--only`` and the root's folder call it."""
        return f"{self.marker}-{self.series}"

    @property
    def marker(self) -> str:
        """Return pytest's marker of the tests that need this scheduler."""
        return self.scheduler.lower().replace(" ", "")

    @property
    def master(self) -> str:
        """Return the package whose version is the scheduler's."""
        return next(name for name in self.packages if name in MASTERS)


VERSIONS = (
    Version("Slurm", "20.11", "bullseye", SLURM),
    Version("Slurm", "22.05", "bookworm", SLURM),
    # slurmdbd ends at its first query with libmariadb3 11.8.9 (sid, trixie)
    Version("Slurm", "24.11", "trixie", (*SLURM, "src:mariadb/bookworm")),
    Version("Slurm", "26.05", "sid", (*SLURM, "src:mariadb/bookworm")),
    Version("Grid Engine", "8.1", "bookworm", GRID_ENGINE),
    Version("HTCondor", "23.9", "trixie", ("minihtcondor",)),
)


@dataclass(slots=True)
class Result:
    """The result of the tests of one version."""

    row: str
    notes: list[str] = field(default_factory=list)
    passed: bool = False


def main() -> int:
    """Run the selected versions; return the exit code."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--roots", type=Path, default=ROOT / ".cache/matrix")
    names = [version.name for version in VERSIONS]
    parser.add_argument("--only", action="append", choices=names, metavar="NAME")
    parser.add_argument("words", nargs="*", metavar="PYTEST_WORD")
    given = parser.parse_args()
    if os.geteuid() != 0:
        print("matrix: needs root, for namespaces and mounts", file=sys.stderr)
        return 3
    results = {}
    for version in VERSIONS:
        if not given.only or version.name in given.only:
            print(f"== {version.name}", flush=True)
            results[title(version)] = one(version, given.roots.resolve(), given.words)
    if not given.words:  # a part of the tests is not what the table shows
        write(results)
    print(HEAD + "".join(result.row for result in results.values()))
    return 0 if all(result.passed for result in results.values()) else 1


def one(version: Version, roots: Path, words: Iterable[str]) -> Result:
    """Make the root of a version where there is none, and run its tests in it."""
    root = roots / version.name
    made = subprocess.run(
        [ROOT / "ci/matrix-root.sh", root, version.suite, *version.packages],
        stderr=subprocess.PIPE,
        text=True,
        check=False,
    )
    if made.returncode != 0:
        print(made.stderr, file=sys.stderr)
        return missing(version, made.stderr.strip().splitlines()[-1].partition(": ")[2])
    installed = package(root, version)
    if not installed.startswith(version.series):
        return missing(version, f"Debian {version.suite} has {installed}")
    seen = ROOT / ".cache/matrix" / f"{version.name}.xml"
    seen.parent.mkdir(parents=True, exist_ok=True)
    seen.unlink(missing_ok=True)
    subprocess.run(
        [
            *(ROOT / "ci/isolated.sh", ROOT / "ci/in-root.sh", root),
            *("python", "-m", "pytest", "-m", version.marker, "-p", "no:cacheprovider"),
            *(f"--junitxml={seen}", *TESTS, *words),
        ],
        cwd=ROOT,
        check=False,
    )
    if not seen.exists():
        return missing(version, "its tests did not come to an end")
    return read(version, f"Debian {version.suite}, {version.master} {installed}", seen)


def missing(version: Version, why: str) -> Result:
    """Return the result of a version that cannot be installed."""
    origin = f"Debian {version.suite}"
    return Result(
        row(version, origin, "not available", "", "", ""), [f"not available: {why}"]
    )


def package(root: Path, version: Version) -> str:
    """Return the version of the scheduler's package in *root*."""
    asked = ["chroot", str(root), "dpkg-query", "-W", "-f", "${Version}"]
    asked.append(version.master)
    return subprocess.run(asked, stdout=subprocess.PIPE, text=True, check=True).stdout


def read(version: Version, origin: str, seen: Path) -> Result:
    """Return the result that pytest wrote to *seen*."""
    counts = dict.fromkeys(("passed", "skipped", "failed"), 0)
    notes, skips = [], Counter[str]()
    for case in ET.parse(seen).iter("testcase"):  # noqa: S314  # our own pytest's
        name = f"`{case.get('name')}`"
        end = next((end for end in case if end.tag in ENDS), None)
        kind = ENDS[end.tag] if end is not None else "passed"
        counts[kind] += 1
        if end is not None:
            said = (end.get("message") or "").strip().splitlines() or [""]
            why = re.sub(r"[|<>]", " ", said[0])[:200]
            if kind == "skipped":  # many tests for one reason
                skips[why] += 1
            else:
                notes.append(f"{kind}: {name}: {why}")
    notes += [f"{count} skipped: {why}" for why, count in skips.items()]
    numbers = (sum(counts.values()), *counts.values())
    result = Result(row(version, origin, *map(str, numbers)), sorted(notes))
    result.passed = counts["failed"] == 0 and counts["passed"] > 0
    return result


ENDS = {"skipped": "skipped", "failure": "failed", "error": "failed"}


def title(version: Version) -> str:
    """Return what the first column calls a version."""
    return f"{version.scheduler} {version.series}"


def row(version: Version, *cells: str) -> str:
    """Return a line of the table, dated today."""
    today = dt.datetime.now(tz=dt.UTC).date().isoformat()
    return f"| {' | '.join((title(version), *cells, today))} |\n"


def write(results: dict[str, Result]) -> None:
    """Put the table and what was skipped or failed into the page."""
    before, _, rest = PAGE.read_text().partition(BEGIN)
    old, _, after = rest.partition(END)
    rows: dict[str, str] = {}
    notes: dict[str, str] = {}
    for line in old.splitlines(keepends=True):
        if match := re.match(r"(\||-) (\w[\w ]* [\d.]+)( \| |, )", line):
            found = rows if match[1] == "|" else notes
            found[match[2]] = found.get(match[2], "") + line
    for name, result in results.items():
        rows[name] = result.row
        notes[name] = "".join(f"- {name}, {note}\n" for note in result.notes)
    order = [title(version) for version in VERSIONS]
    table = "".join(rows.get(name, "") for name in order)
    listed = "".join(notes.get(name, "") for name in order)
    text = f"`{COMMAND}` wrote this:\n\n{HEAD}{table}\n{listed}"
    PAGE.write_text(f"{before}{BEGIN}{text}{END}{after}")


if __name__ == "__main__":
    sys.exit(main())
