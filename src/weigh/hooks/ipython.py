"""``%load_ext weigh``: ``%%weigh`` measures a cell, ``%weigh`` one line."""

import ast
from typing import Any

from weigh.measure.region.account import Account
from weigh.measure.region.region import named
from weigh.measure.region.this_process import current
from weigh.model.gpu import GpuMemory
from weigh.units import Bytes, format_brief, format_size

_NAME = "cell"
_INDENT = "       "
_TELLING = 0.01  # seconds; below, CPU time is too coarse to be a share


def load_ipython_extension(shell: Any) -> None:
    """Give *shell* the magics; IPython calls this at ``%load_ext weigh``."""

    def weigh(line: str, cell: str | None = None) -> object:
        """Measure a cell or a line: time, CPU, memory, GPU memory."""
        source = line if cell is None else cell
        return measure(shell, source, label=line.strip() if cell is not None else "")

    weigh._ipython_magic_no_var_expand = True  # type: ignore[attr-defined] # noqa: SLF001 - leaves {} and $ in the code alone
    shell.register_magic_function(weigh, magic_kind="line_cell", magic_name="weigh")


def measure(shell: Any, source: str, *, label: str = "") -> object:
    """Run *source* as a cell of *shell*'s and print what it used; give its value."""
    run, value = _compiled(shell, source)
    names = shell.user_ns
    tracker = current()
    label = named(label, of="%%weigh") if label else ""
    account = tracker.enter(label or _NAME)
    try:
        exec(run, names)  # noqa: S102 - what the user typed
        return None if value is None else eval(value, names)  # noqa: S307 - as above
    finally:
        if account is not None:
            tracker.leave(account)
            print(render_cell(account, label), end="")  # noqa: T201 - where the cell's own output goes


def render_cell(account: Account, label: str = "") -> str:
    """Write what a cell used: time and CPU, memory, a line for each GPU."""
    title = f"weigh  {label}  " if label else "weigh  "
    time = f"{format_brief(account.wall)}, {format_brief(account.cpu)} of CPU"
    if account.wall >= _TELLING:
        time += f" ({account.cpu / account.wall:.2f} of a core)"
    lines = [f"{title}{time}", _memory(account)]
    gpus = account.span.gpus.memory() if account.span.gpus is not None else ()
    lines += [_gpu(number, card) for number, card in enumerate(gpus)]
    return "".join(f"{line}\n" for line in lines)


def _compiled(shell: Any, source: str) -> tuple[Any, Any]:
    """Compile a cell, its last expression apart; None where that is none.

    Raises:
        SyntaxError: IPython shows it.
    """
    text = shell.transform_cell(source)
    name = shell.compile.cache(text)  # so that tracebacks show the lines
    tree = ast.parse(text, name)
    last = tree.body[-1] if tree.body else None
    if not isinstance(last, ast.Expr) or text.rstrip().endswith(";"):
        return compile(tree, name, "exec"), None
    del tree.body[-1]
    run = compile(tree, name, "exec")
    return run, compile(ast.Expression(last.value), name, "eval")


def _memory(account: Account) -> str:
    span = account.span
    bound = "" if span.exact else "at most "
    return f"{_INDENT}memory {_held(span.before, span.peak, span.after, bound)}"


def _gpu(number: int, card: GpuMemory) -> str:
    return f"{_INDENT}gpu {number} {_held(card.before, card.peak, card.after)}"


def _held(
    before: Bytes | None, peak: Bytes | None, after: Bytes | None, bound: str = ""
) -> str:
    """Say what was held at the peak, before and after."""
    if peak is None:
        return "not measured"
    sizes = (("before", before), ("after", after))
    known = [f"{format_size(size)} {when}" for when, size in sizes if size is not None]
    return ", ".join([f"{bound}{format_size(peak)} at the peak", *known])
