"""NaN and inf in what a trial saved: .npy, .npz, .safetensors, .pt.

A program that learned nothing often ends well: its parameters are NaN. The formats of
numpy and safetensors are read here, without either; a .pt may run code when it is
unpickled, so torch reads it in a process of its own, with ``weights_only``.

Sources: NumPy enhancement proposal 1 (.npy), the format of safetensors 0.4.
"""

import ast
import json
import math
import os
import shutil
import struct
import subprocess
import time
import zipfile
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from typing import IO, NamedTuple

import msgspec

from weigh.regular_file import only_regular
from weigh.units import MIB, Seconds

_MOST_ENTRIES = 20_000  # of the folders that are searched
_DEEPEST = 4  # folders below each other
_PIECE = 4 * MIB  # bytes; a multiple of each number's size
_LONGEST_HEADER = 100 << 20  # bytes; the limit of safetensors itself
_PATIENCE: Seconds = 60.0  # for all files of a check
_IS_MASK = "mask"  # in names of tensors whose -inf are meant


class _NumberFormat(NamedTuple):
    """A floating-point number: its bytes, and its letter for :mod:`struct`.

    ``high`` are the highest bytes that only NaN, inf and huge numbers have.
    """

    size: int
    high: bytes
    letter: str


_ALL_ONES = b"\x7f\xff"  # of the exponent, with either sign
_FORMATS = {
    "F16": _NumberFormat(2, b"\x7c\x7d\x7e\x7f\xfc\xfd\xfe\xff", "e"),
    "BF16": _NumberFormat(2, _ALL_ONES, ""),  # the upper half of an F32
    "F32": _NumberFormat(4, _ALL_ONES, "f"),
    "F64": _NumberFormat(8, _ALL_ONES, "d"),
}
_NUMPY_NAMES = {"<f2": "F16", "<f4": "F32", "<f8": "F64"}


class LostTensor(msgspec.Struct, frozen=True):
    """A tensor with numbers that are NaN or infinite."""

    name: str
    """Within its file; empty where a file has only one."""
    nan: int
    infinite: int
    numbers: int

    @property
    def word(self) -> str:
        """Return what is lost: NaN, or inf if there is none."""
        return "NaN" if self.nan else "inf"


class SavedFile(msgspec.Struct, frozen=True):
    """A file that a trial saved: its lost tensors, or why it was not read."""

    path: str
    changed: Seconds
    """Seconds since the epoch."""
    tensors: tuple[LostTensor, ...] = ()
    unread: str | None = None

    def words(self) -> str:
        """Return in a few words what is wrong with it."""
        first = self.tensors[0]
        lost = first.nan or first.infinite
        many = (
            f"all {lost:,}"
            if lost == first.numbers
            else f"{lost:,} of {first.numbers:,}"
        )
        of_what = f" of {first.name}" if first.name else ""
        more = f", and {len(self.tensors) - 1} more" if len(self.tensors) > 1 else ""
        return f"{many} numbers{of_what} are {first.word}{more}"


def lost_in_saved_files(
    folders: Iterable[str], since: Seconds, pythons: Iterable[str]
) -> Iterator[SavedFile]:
    """Yield the files saved *since* a time that have lost numbers, or were not read.

    *pythons* are interpreters that may have torch.
    """
    ends_at = time.monotonic() + _PATIENCE
    # the newest first: the last checkpoint is the one that counts
    found = sorted(_saved_files(folders, since), key=lambda one: one[1], reverse=True)
    of_torch = []
    for path, changed in found:
        tensors: tuple[LostTensor, ...] = ()
        unread = None
        if path.endswith(_OF_TORCH):
            of_torch.append((path, changed))
            continue
        try:
            tensors = tuple(_lost_tensors(path, ends_at))
        except (OSError, ValueError, zipfile.BadZipFile) as e:
            unread = str(e) or type(e).__name__
        except Exception as e:  # noqa: BLE001 - a file may hold anything
            unread = f"its contents are invalid ({type(e).__name__})"
        if tensors or unread:
            yield SavedFile(path, changed, tensors, unread)
    # one process for all of them: to import torch takes seconds
    lost = _lost_by_torch([path for path, _ in of_torch], pythons, ends_at)
    for (path, changed), answer in zip(of_torch, lost, strict=True):
        if isinstance(answer, str):
            yield SavedFile(path, changed, unread=answer)
        elif answer:
            yield SavedFile(path, changed, answer)


_OF_TORCH = (".pt", ".pth", ".ckpt")
_READ_HERE = (".npy", ".npz", ".safetensors")


def _saved_files(
    folders: Iterable[str], since: Seconds
) -> Iterator[tuple[str, Seconds]]:
    """Yield the path and the time of each file of tensors, changed since a time."""
    waiting = [(folder, 0) for folder in dict.fromkeys(map(os.path.realpath, folders))]
    seen = set[str]()
    left = _MOST_ENTRIES
    while waiting and left > 0:
        folder, depth = waiting.pop(0)
        if folder in seen:
            continue
        seen.add(folder)
        with suppress(OSError), os.scandir(folder) as entries:
            for entry in entries:
                left -= 1
                if entry.name.startswith("."):
                    continue
                if entry.is_dir(follow_symlinks=False):
                    waiting += [(entry.path, depth + 1)] * (depth < _DEEPEST)
                elif entry.name.endswith((*_OF_TORCH, *_READ_HERE)):
                    changed = entry.stat().st_mtime
                    if changed >= since:
                        yield entry.path, changed


def _lost_tensors(path: str, ends_at: Seconds) -> Iterator[LostTensor]:
    """Yield the tensors of one file with numbers that are lost.

    Raises:
        ValueError: it is not what its name says.
        zipfile.BadZipFile: as above.
        OSError: it cannot be read.
    """
    if path.endswith(".npz"):
        with zipfile.ZipFile(path) as archive:
            for name in archive.namelist():
                with archive.open(name) as member:
                    yield from _lost_in_npy(member, name.removesuffix(".npy"), ends_at)
        return
    with open(path, "rb", opener=only_regular) as file:
        if path.endswith(".npy"):
            yield from _lost_in_npy(file, "", ends_at)
        else:
            yield from _lost_in_safetensors(file, ends_at)


def _lost_in_npy(file: IO[bytes], name: str, ends_at: Seconds) -> Iterator[LostTensor]:
    start = file.read(8)
    if start[:6] != b"\x93NUMPY":
        raise ValueError("no array of numpy")
    width = 2 if start[6:7] == b"\x01" else 4
    length = int.from_bytes(file.read(width), "little")
    try:
        header = ast.literal_eval(
            file.read(min(length, _LONGEST_HEADER)).decode("latin1")
        )
        kind, numbers = _NUMPY_NAMES.get(header["descr"]), math.prod(header["shape"])
    except (SyntaxError, KeyError, TypeError) as error:
        raise ValueError("its header cannot be read") from error
    # whole numbers, texts and objects have no NaN
    if kind is not None:
        for one in _lost_tensor(file, name, _FORMATS[kind], numbers, ends_at):
            # data may lack some numbers, which are NaN then
            if one.infinite or one.nan == numbers:
                yield one


def _lost_in_safetensors(file: IO[bytes], ends_at: Seconds) -> Iterator[LostTensor]:
    length = int.from_bytes(file.read(8), "little")
    if length > _LONGEST_HEADER:
        raise ValueError("its header cannot be read")
    tensors = json.loads(file.read(length))
    base = 8 + length
    for name, tensor in tensors.items():
        kind = _FORMATS.get(tensor.get("dtype", ""))
        if kind is not None:
            begin, end = tensor["data_offsets"]
            file.seek(base + begin)
            numbers = (end - begin) // kind.size
            yield from _lost_tensor(file, name, kind, numbers, ends_at)


def _lost_tensor(
    file: IO[bytes],
    name: str,
    number_format: _NumberFormat,
    numbers: int,
    ends_at: Seconds,
) -> Iterator[LostTensor]:
    """Yield the tensor whose numbers stand next in the file, if any of them is lost."""
    nan = infinite = 0
    left = numbers * number_format.size
    while left > 0:
        if time.monotonic() > ends_at:
            raise ValueError("no time was left")
        piece = file.read(min(left, _PIECE))
        # of a task that was stopped while it saved
        if len(piece) < min(left, _PIECE):
            raise ValueError("its end is missing")
        left -= len(piece)
        high = piece[number_format.size - 1 :: number_format.size]
        # in the speed of C: nearly all pieces have none
        if len(high.translate(None, number_format.high)) == len(high):
            continue
        values = _values_of(piece, number_format)
        nan += sum(map(math.isnan, values))
        # a mask of -inf is meant
        least = 0.0 if _IS_MASK in name.lower() else -math.inf
        infinite += sum(math.isinf(one) and one >= least for one in values)
    if nan or infinite:
        yield LostTensor(name, nan, infinite, numbers)


def _values_of(piece: bytes, number_format: _NumberFormat) -> tuple[float, ...]:
    letter = number_format.letter
    if not letter:
        whole = bytearray(2 * len(piece))
        whole[2::4], whole[3::4] = piece[::2], piece[1::2]
        piece, letter = bytes(whole), "f"
    return struct.unpack(f"<{len(piece) // struct.calcsize(letter)}{letter}", piece)


_READ_WITH_TORCH = """
import json, sys, torch
print("has torch", flush=True)
def tensors(name, thing):
    if isinstance(thing, torch.Tensor):
        yield name, thing
    elif isinstance(thing, dict):
        for key, one in thing.items():
            yield from tensors(f"{name}.{key}" if name else str(key), one)
    elif isinstance(thing, (list, tuple)):
        for place, one in enumerate(thing):
            yield from tensors(f"{name}.{place}" if name else str(place), one)
def lost(path):
    found = torch.load(path, map_location="cpu", weights_only=True)
    for name, one in tensors("", found):
        if one.is_floating_point():
            nan = int(one.isnan().sum())
            is_mask = "mask" in name.lower()
            infinite = int((one.isposinf() if is_mask else one.isinf()).sum())
            if nan or infinite:
                yield [name, nan, infinite, one.numel()]
for path in json.load(sys.stdin):
    try:
        answer = [*lost(path)]
    except Exception:
        answer = None
    print(json.dumps(answer), flush=True)
"""


def _lost_by_torch(
    paths: Sequence[str], pythons: Iterable[str], ends_at: Seconds
) -> Iterator[tuple[LostTensor, ...] | str]:
    """Yield for each file the lost tensors, or why it was not read."""
    left = [*paths]
    for python in dict.fromkeys(pythons):
        while left and time.monotonic() < ends_at:
            started, *answers = _lines_by_torch(python, left, ends_at) or [b""]
            if not started:
                break  # another Python may have torch
            for line in answers:
                lost = json.loads(line)
                yield (
                    "torch cannot read it as weights only"
                    if lost is None
                    else tuple(LostTensor(*one) for one in lost)
                )
            left = left[len(answers) :]
            if left and time.monotonic() < ends_at:
                left.pop(0)
                yield "torch cannot read it as weights only"  # it ended torch
    why = "no Python with torch was found"
    if time.monotonic() >= ends_at:
        why = f"torch takes more than {_PATIENCE:g} s"
    yield from [why] * len(left)


def _lines_by_torch(python: str, paths: Sequence[str], ends_at: Seconds) -> list[bytes]:
    """Return a line once torch is there, and one for each file that it came to."""
    try:
        printed = subprocess.run(
            [python, "-c", _READ_WITH_TORCH],
            input=json.dumps(paths).encode(),
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            timeout=max(0.0, ends_at - time.monotonic()),
            check=False,
            env={**os.environ, "CUDA_VISIBLE_DEVICES": ""},
        ).stdout
    except subprocess.TimeoutExpired as error:
        printed = error.output or b""
    except OSError:
        return []
    return printed.split(b"\n")[:-1]


def pythons_of(lines: Iterable[str], env: Mapping[str, str]) -> list[str]:
    """Return the interpreters that commands call, and the one on the PATH."""
    words = [word for line in lines for word in line.split()]
    named = [word for word in words if os.path.basename(word).startswith("python")]
    found = (
        shutil.which(word, path=env.get("PATH", "")) for word in [*named, "python3"]
    )
    return list(dict.fromkeys(path for path in found if path is not None))
