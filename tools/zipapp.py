"""Write weigh and its libraries into one file, for sites where pip is refused.

    python tools/zipapp.py FILE [PYTHON_VERSION ...]

The file runs under python3. At its first start it unpacks itself into a virtual
environment below ~/.local/share/weigh (or WEIGH_HOME), once per version of Python, and
from then on starts that: job scripts call weigh by the path of an interpreter, which a
file that stays packed does not have. It has the compiled libraries of each version of
Python named, for Linux on the machine's own kind of processor.
"""

import platform
import subprocess
import sys
import tempfile
import zipfile
from pathlib import Path

ROOT = Path(__file__).parents[1]
VERSIONS = ("3.11", "3.12", "3.13", "3.14")
MAIN = """\
import os, shutil, subprocess, sys, zipfile

if sys.version_info < (3, 11):
    sys.exit("weigh: Python 3.11 or newer is needed: python3.12 weigh.pyz, or a module")
tag = f"cp{sys.version_info[0]}{sys.version_info[1]}"
packed = os.path.abspath(sys.argv[0])
with zipfile.ZipFile(packed) as archive:
    digest = archive.read("digest").decode()
    home = os.environ.get("WEIGH_HOME") or os.path.join(
        os.environ.get("XDG_DATA_HOME") or os.path.expanduser("~/.local/share"),
        "weigh")
    env = os.path.join(home, f"{digest}-{tag}")
    python = os.path.join(env, "bin", "python3")
    if not os.path.exists(python):
        wheels = [n for n in archive.namelist() if n.startswith(("any/", tag + "/"))]
        if not any(n.startswith(tag + "/") for n in wheels):
            sys.exit(f"weigh: {packed} has no libraries for Python {tag[2:]}: "
                     "make zipapp with that version")
        part = f"{env}.{os.getpid()}"
        try:
            os.makedirs(home, exist_ok=True)
            subprocess.run([sys.executable, "-m", "venv", "--without-pip", part],
                           check=True, stdout=subprocess.DEVNULL)
            site = os.path.join(part, "lib", f"python{sys.version_info[0]}."
                                f"{sys.version_info[1]}", "site-packages")
            for name in wheels:
                with archive.open(name) as wheel, zipfile.ZipFile(wheel) as content:
                    content.extractall(site)
            start = os.path.join(part, "bin", "weigh")
            with open(start, "w") as script:
                script.write(f'#!/bin/sh\\nexec "{python}" -P -m weigh "$@"\\n')
            os.chmod(start, 0o755)
            os.rename(part, env)
        except OSError as error:
            shutil.rmtree(part, ignore_errors=True)
            if not os.path.exists(python):  # another start may have been quicker
                sys.exit(f"weigh: cannot unpack into {env}: {error.strerror} "
                         "(WEIGH_HOME names another folder)")
os.execv(python, [python, "-P", "-m", "weigh", *sys.argv[1:]])
"""


def main(argv: list[str]) -> int:
    """Write the file."""
    if not argv or argv[0].startswith("-"):
        print("usage: python tools/zipapp.py FILE [PYTHON_VERSION ...]")
        return 2
    target, versions = Path(argv[0]), argv[1:] or VERSIONS
    with tempfile.TemporaryDirectory() as folder:
        wheels = Path(folder)
        _pip("wheel", "--no-deps", "--wheel-dir", wheels / "any", ROOT)
        for version in versions:
            _download(wheels, version)
        target.parent.mkdir(parents=True, exist_ok=True)
        _write(target, wheels)
    print(f"wrote {target}: {target.stat().st_size / (1 << 20):.1f} MiB")
    return 0


def _pip(*words: object) -> None:
    quiet = ("--quiet", "--disable-pip-version-check")
    subprocess.run(
        [sys.executable, "-m", "pip", *map(str, words[:1]), *quiet]
        + [str(word) for word in words[1:]],
        check=True,
    )


def _download(wheels: Path, version: str) -> None:
    """Get the libraries for a version of Python; those for any go into `any`."""
    tag = f"cp{version.replace('.', '')}"
    (weigh,) = (wheels / "any").glob("weigh-*.whl")
    machine = platform.machine()
    platforms = [
        f"--platform={kind}_{machine}"
        for kind in ("manylinux2014", "manylinux_2_17", "manylinux_2_28")
    ]
    _pip(
        *("download", "--only-binary=:all:", f"--python-version={version}"),
        *("--implementation=cp", *platforms, "--dest", wheels / tag, weigh),
    )
    for wheel in (wheels / tag).glob("*-none-any.whl"):
        wheel.replace(wheels / "any" / wheel.name)


def _write(target: Path, wheels: Path) -> None:
    files = sorted(wheels.rglob("*.whl"))
    (weigh,) = (wheels / "any").glob("weigh-*.whl")
    # not of the bytes: a wheel has the time of its build
    digest = f"{weigh.name.split('-')[1]}-{abs(hash_of(files)):012x}"
    with target.open("wb") as file:
        file.write(b"#!/usr/bin/env python3\n")
    with zipfile.ZipFile(target, "a", zipfile.ZIP_STORED) as archive:
        archive.writestr("__main__.py", MAIN)
        archive.writestr("digest", digest)  # Python 3.6 reads no file with a comment
        for one in files:
            archive.write(one, one.relative_to(wheels).as_posix())
    target.chmod(0o755)


def hash_of(files: list[Path]) -> int:
    """Return a number that changes with the content of the wheels."""
    total = 0
    for file in files:
        with zipfile.ZipFile(file) as wheel:
            for one in wheel.infolist():
                total = (total * 31 + one.CRC) & 0xFFFFFFFFFFFF
    return total


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
