"""NaN in what tasks saved: found as numpy finds it, in the task that saved it."""

import io
import json
import math
import os
import struct
import sys
import zipfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from called_weigh import CalledWeigh
from sessions import check_session

from weigh.flow.check.saved import lost_in_saved_files

numpy = pytest.importorskip("numpy", reason="numpy is not installed")


def found_in(folder: Path) -> dict[str, dict[str, tuple[int, int, int]]]:
    """Return nan, inf and all numbers of each lost tensor, by file and name."""
    return {
        Path(one.path).name: {
            lost.name: (lost.nan, lost.infinite, lost.numbers) for lost in one.tensors
        }
        for one in lost_in_saved_files([str(folder)], 0, [sys.executable])
    }


def safetensors(tensors: Mapping[str, tuple[str, bytes]]) -> bytes:
    header: dict[str, object] = {"__metadata__": {"format": "pt"}}
    at = 0
    for name, (kind, data) in tensors.items():
        header[name] = {
            "dtype": kind,
            "shape": [1],
            "data_offsets": [at, at + len(data)],
        }
        at += len(data)
    text = json.dumps(header).encode()
    return (
        struct.pack("<Q", len(text)) + text + b"".join(d for _, d in tensors.values())
    )


INFINITIES = struct.pack("<3f", math.inf, 1, math.inf)


def with_length(header: bytes) -> bytes:
    return struct.pack("<Q", len(header)) + header


def array_of_three(shape: str) -> bytes:
    header = f"{{'descr': '<f4', 'fortran_order': False, 'shape': {shape}}}".encode()
    size = struct.pack("<H", len(header))
    return b"\x93NUMPY\x01\x00" + size + header + INFINITIES


def archive_compressed_in_no_known_way() -> bytes:
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w") as archive:
        archive.writestr("a.npy", array_of_three("(3,)"))
    parts = file.getvalue().split(b"PK\x01\x02")
    # the method, in the member's head and in the list at the end
    return (
        parts[0][:8]
        + b"\x63"
        + parts[0][9:]
        + (b"PK\x01\x02" + parts[1][:6] + b"\x63" + parts[1][7:])
    )


@pytest.mark.parametrize("seed", range(4))
def test_lost_numbers_are_counted_as_numpy_counts_them(
    tmp_path: Path, seed: int
) -> None:
    draw = numpy.random.default_rng(seed)
    wanted = {}
    tensors = {}
    for place, (letter, kind) in enumerate(
        {"f2": "F16", "f4": "F32", "f8": "F64"}.items()
    ):
        # bits at random: every exponent, with NaN, inf and huge numbers among them
        size = int(draw.integers(0, 3_000_000 // (place + 1)))
        bits = draw.integers(0, 256, size * int(letter[1]), dtype="u1")
        values = bits.view(f"<{letter}")
        tensors[letter] = (kind, values.tobytes())
        nan, infinite = int(numpy.isnan(values).sum()), int(numpy.isinf(values).sum())
        if nan or infinite:
            wanted[letter] = (nan, infinite, size)
    (tmp_path / "m.safetensors").write_bytes(safetensors(tensors))
    assert found_in(tmp_path) == ({"m.safetensors": wanted} if wanted else {})


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("a.npy", b"garbage"),
        ("a.npy", b"\x93NUMPY\x01\x00\x10\x00{'descr': '<f4'}"),
        ("a.npy", b"\x93NUMPY\x01\x00\x06\x00__ev__"),
        ("a.npz", b"PK\x03\x04 no archive"),
        ("a.safetensors", b"\xff" * 64),
        ("a.safetensors", struct.pack("<Q", 4) + b"[1]}"),
        ("a.safetensors", safetensors({"w": ("F32", b"")})[:-20]),
        ("a.pt", b"garbage"),
        # a task was stopped while it saved
        ("a.npy", array_of_three("(3,)")[:-1]),
        ("a.safetensors", safetensors({"w": ("F32", INFINITIES)})[:-1]),
        ("a.safetensors", safetensors({"w": ("BF16", INFINITIES)})[:-1]),
        ("a.npy", array_of_three("('a',)")),
        ("a.npz", archive_compressed_in_no_known_way()),
        ("a.safetensors", with_length(b"[1]")),
        ("a.safetensors", with_length(b'{"w": "F32"}')),
        ("a.safetensors", with_length(b'{"w": {"dtype": "F32"}}')),
        ("a.safetensors", with_length(b"[" * 100_000)),
    ],
)
def test_what_cannot_be_read_is_named_with_its_reason(
    tmp_path: Path, name: str, content: bytes
) -> None:
    (tmp_path / name).write_bytes(content)
    (one,) = lost_in_saved_files([str(tmp_path)], 0, [sys.executable])
    assert one.unread
    assert not one.tensors


def stand_in_for_torch(folder: Path, script: str) -> str:
    """Return an interpreter that answers as one with torch does, by *script*."""
    python = folder / "python3"
    python.write_text(f"#!/bin/sh\necho >>{folder}/starts\necho has torch\n{script}\n")
    python.chmod(0o755)
    return str(python)


def saved_checkpoints(folder: Path, number: int) -> list[str]:
    paths = [folder / f"{n}.pt" for n in range(number)]
    for n, path in enumerate(paths):
        path.touch()
        os.utime(path, (0, 1000 - n))
    return [str(path) for path in paths]


def test_worked_examples_of_saved_files(
    tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch
) -> None:
    @contextmanager
    def patience_of(seconds: float) -> Iterator[None]:
        with monkeypatch.context() as patched:
            patched.setattr("weigh.flow.check.saved._PATIENCE", seconds)
            yield

    helpers = (
        found_in,
        patience_of,
        safetensors,
        saved_checkpoints,
        stand_in_for_torch,
    )
    names = {one.__name__: one for one in helpers} | {
        "a_folder": lambda: tmp_path_factory.mktemp("saved"),
        "numpy": numpy,
    }
    check_session(Path(__file__).with_name("saved_files.session"), names)


def test_a_task_that_saves_nan_fails_its_check(
    weigh: CalledWeigh, tmp_path: Path
) -> None:
    (tmp_path / "fit.py").write_text(
        "import numpy, sys\n"
        "numpy.savez(sys.argv[1], w=numpy.full(9, float(sys.argv[2])))\nprint('done')\n"
    )
    (tmp_path / "out").mkdir()
    lines = (
        f"{sys.executable} fit.py out/m{n}.npz {v}\n" for n, v in [(1, 1), (2, "nan")]
    )
    (tmp_path / "tasks.txt").write_text("".join(lines))
    code, out, _ = weigh("check", "tasks.txt", "--json")
    trials: list[dict[str, Any]] = json.loads(out)["trials"]
    assert code == 1
    assert [(one["is_wrong"], one["verdict"]) for one in trials] == [
        (False, trials[0]["verdict"]),
        (True, "saved NaN"),
    ]
    assert trials[1]["evidence"] == "out/m2.npz: all 9 numbers of w are NaN"


@pytest.mark.parametrize(
    "path", ["model_{n}.npy", "run_{n}/model.npy", "m{n}.npy", "o/0.{n}.npy"]
)
def test_of_tasks_side_by_side_the_one_whose_words_the_path_has_has_saved_it(
    weigh: CalledWeigh, tmp_path: Path, path: str
) -> None:
    (tmp_path / "fit.sh").write_text(
        f"n=${{1#0.}} path={path.replace('{n}', '$n')}\n"
        'mkdir -p "$(dirname "$path")" && cp "saved_$n" "$path"\n'
    )
    for n in range(1, 5):
        with (tmp_path / f"saved_{n}").open("wb") as file:
            numpy.save(file, numpy.full(9, math.nan if n == 3 else 1.0))
    numbers = [f"0.{n}" if path.startswith("o/") else n for n in range(1, 5)]
    lines = (f"sh fit.sh {number}\n" for number in numbers)
    (tmp_path / "tasks.txt").write_text("".join(lines))
    _, out, _ = weigh("check", "tasks.txt", "-j", "4", "--json")
    trials = json.loads(out)["trials"]
    assert [one["task"] for one in trials if one["is_wrong"]] == [3]


def test_torch_reads_its_own_files_and_runs_no_code_in_them(tmp_path: Path) -> None:
    torch = pytest.importorskip("torch", reason="torch is not installed")
    layer = torch.nn.Linear(4, 3)
    torch.save(layer.state_dict(), tmp_path / "good.pt")
    layer.weight.data[1, 2] = math.nan
    torch.save({"model": layer.state_dict(), "step": 3}, tmp_path / "lost.ckpt")

    class Attack:
        def __reduce__(self) -> tuple[object, tuple[str]]:
            return eval, (f"open({str(tmp_path / 'ran')!r}, 'w')",)

    torch.save({"model": Attack()}, tmp_path / "attack.pt")
    found = {
        Path(one.path).name: (one.tensors, one.unread)
        for one in lost_in_saved_files([str(tmp_path)], 0, [sys.executable])
    }
    assert not (tmp_path / "ran").exists()
    assert found["attack.pt"] == ((), "torch cannot read it as weights only")
    assert [(t.name, t.nan, t.numbers) for t in found["lost.ckpt"][0]] == [
        ("model.weight", 1, 12)
    ]
    assert "good.pt" not in found
