"""Whether the tasks of a plan import torch: only then a GPU that it cannot use counts.

Files are read, nothing is run: the Python and shell files that the commands name, and
the modules next to them that these import. What is not found is not known to import it.
"""

import os
import re
import shlex
from collections.abc import Iterable, Iterator

from weigh.model.job import JobRequest, JobSetup
from weigh.model.plan import Plan

# these cannot be imported without torch
_NEED_TORCH = frozenset(
    {"torch", "torchvision", "torchaudio", "lightning", "pytorch_lightning", "timm"}
    | {"accelerate", "deepspeed", "flair", "sentence_transformers", "stanza", "fastai"}
)
# they come with torch, so what they start uses it
_LAUNCHERS = frozenset({"torchrun", "accelerate", "deepspeed"})
# a list of names in brackets may go over lines
_IMPORT = re.compile(
    r"(?:^|;)[ \t]*(?:from[ \t]+([\w.]+)[ \t]+)?import[ \t]+(\([^()]*\)|[\w., \t]+)",
    re.MULTILINE,
)
# per plan: submitting must not read a whole source tree
_MOST_FILES = 100
# letters; imports stand at the top
_LONGEST_FILE = 1 << 20


def imports_torch(
    plan: Plan, setup: JobSetup, cwd: str, job_request: JobRequest
) -> bool:
    """Return whether a task of *plan*, started in *cwd*, is known to import torch.

    Only a job with a GPU tries torch on the node: without, no file is read.
    """
    lines = (kind.example for kind in plan.kinds)
    return job_request.gpus > 0 and lines_import_torch(lines, setup, cwd)


def lines_import_torch(lines: Iterable[str], setup: JobSetup, cwd: str) -> bool:
    """Return whether a command of *lines*, started in *cwd*, imports torch."""
    if any(name.partition(".")[0] in _NEED_TORCH for name in setup.imports):
        return True
    reader = _ImportReader(cwd)
    return any(map(reader.line_needs_torch, lines))


class _ImportReader:
    """Follows commands to files, and files to the modules next to them; each once."""

    def __init__(self, cwd: str) -> None:
        self._cwd = cwd
        self._read: set[str] = set()

    def line_needs_torch(self, line: str) -> bool:
        """Return whether a command of bash imports torch."""
        try:
            words = shlex.split(line, comments=True)
        except ValueError:
            # a quote that is not closed, as in the middle of a here-document
            words = line.split()
        if any(os.path.basename(word) in _LAUNCHERS for word in words):
            return True
        # each word with the one before it
        for flag, word in zip(("", *words), words, strict=False):
            if flag == "-c" and self._text_needs_torch(word, self._cwd):
                return True
            if flag == "-m" and self._module_needs_torch(word, self._cwd):
                return True
            if self._file_needs_torch(os.path.join(self._cwd, word)):
                return True
        return False

    def _file_needs_torch(self, path: str) -> bool:
        is_python, is_shell = path.endswith(".py"), path.endswith((".sh", ".bash"))
        if path in self._read or len(self._read) == _MOST_FILES:
            return False
        if not (is_python or is_shell) or not os.path.isfile(path):
            return False
        self._read.add(path)
        try:
            with open(path, encoding="utf-8", errors="replace") as file:
                text = file.read(_LONGEST_FILE)
        except OSError:
            return False
        if is_shell:
            return any(map(self.line_needs_torch, text.splitlines()))
        return self._text_needs_torch(text, os.path.dirname(path))

    def _text_needs_torch(self, text: str, folder: str) -> bool:
        names = _imported_modules(text)
        return any(self._module_needs_torch(name, folder) for name in names)

    def _module_needs_torch(self, name: str, folder: str) -> bool:
        if name.partition(".")[0] in _NEED_TORCH:
            return True
        return any(map(self._file_needs_torch, _module_files(name, folder)))


def _imported_modules(text: str) -> Iterator[str]:
    for origin, names in _IMPORT.findall(text):
        if origin:
            yield origin
        # what is imported from a package may be a module of it
        package = f"{origin}." if origin.strip(".") else origin
        for name in re.sub("#.*", "", names).strip("()").split(","):
            yield from (package + word for word in name.split()[:1])  # not "as np"


def _module_files(name: str, folder: str) -> Iterable[str]:
    """Yield the files that ``import NAME`` in a file of *folder* may read."""
    for _ in range(len(name) - len(name.lstrip(".")) - 1):  # ..model is one level up
        folder = os.path.dirname(folder)
    path = folder
    # each package on the way runs its __init__ first
    for part in filter(None, name.split(".")):
        path = os.path.join(path, part)
        yield os.path.join(path, "__init__.py")
    yield os.path.join(path, "__main__.py")
    yield f"{path}.py"
