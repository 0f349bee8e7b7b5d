"""``{memory}`` and ``{cpus}`` in a command: what each attempt at a task may use.

They become variables of the shell, not numbers, because a task is known by its text: a
retry with more memory is still the same task.
"""

import re

from weigh.errors import FormatError

MEMORY, CPUS = "WEIGH_MEMORY_MB", "WEIGH_CPUS"  # MiB; a number of CPUs
NAMES = ("memory", "cpus")
PLACEHOLDER = re.compile(r"(?<!\$)(?<!\{)\{(memory|cpus)(?::([^{}]*))?\}(?!\})")
_MEMORY_FORM = re.compile(r"(?:([1-9]\d?|100)%)?(/cpus)?,?(m|M|MiB|MB)?")
# a form's unit -> what stands behind the number
_SUFFIX = {None: "M", "M": "M", "m": "", "MiB": "MiB", "MB": "MB"}
_WHOLE_HEAP = re.compile(r"-Xmx\{memory(?::(?:100%)?(?:M|MiB|MB)?)?\}")
# where a line quotes: only what a shell expands may be replaced
_PARTS = re.compile(
    rb"(?P<kept>'[^']*'|\\.|\$\{[^}]*\})|\{(?P<name>memory|cpus)(?::(?P<form>[^{}']*))?\}",
    re.DOTALL,
)


def placeholder_expression(name: str, form: str | None) -> str:
    """Return what a shell puts in the place of ``{name:form}``.

    Raises:
        FormatError: there is no such form.
    """
    if name == "cpus":
        if form:
            raise FormatError(f"{{cpus:{form}}} has no forms: write {{cpus}}")
        # ":?" ends the command with a message if weigh did not set the variable
        return f"${{{CPUS}:?}}"
    found = _MEMORY_FORM.fullmatch(form or "")
    if found is None:
        raise FormatError(
            f"no such form: {{memory:{form}}} (80%, 80%/cpus, m, MiB, or 80%,MiB)"
        )
    share, per_cpu, unit = found.groups()
    suffix = _SUFFIX[unit]
    if share is None and per_cpu is None:
        return f"${{{MEMORY}:?}}{suffix}"
    sum_ = f"${{{MEMORY}:?}}" + (f"*{share}/100" if share else "")
    if per_cpu:
        sum_ += f"/${{{CPUS}:?}}"
    return f"$(({sum_})){suffix}"


def check_heap(command_word: str) -> None:
    """Check that a Java heap does not get all of the memory.

    Raises:
        FormatError: it does, and Java needs some outside of its heap.
    """
    if _WHOLE_HEAP.search(command_word):
        raise FormatError(
            "-Xmx{memory} leaves Java nothing outside its heap: write -Xmx{memory:80%}"
        )


def uses_grant(task_line: bytes) -> bool:
    """Return whether a task's line reads how much memory the attempt may hold."""
    # only a placeholder outside single quotes becomes the variable's name
    return MEMORY.encode() in with_expanded_placeholders(task_line)


def with_expanded_placeholders(task_line: bytes) -> bytes:
    """Replace the placeholders of a task's line that a shell would expand.

    Those in single quotes stay as they are, and so does a form that does not exist.
    """
    # nearly all lines: do not search further
    if b"{memory" not in task_line and b"{cpus" not in task_line:
        return task_line

    def replaced(match: re.Match[bytes]) -> bytes:
        if match["kept"] is not None:
            return match[0]
        form = (match["form"] or b"").decode("utf-8", "replace")
        try:
            return placeholder_expression(match["name"].decode(), form).encode()
        except FormatError:
            return match[0]

    return _PARTS.sub(replaced, task_line)
