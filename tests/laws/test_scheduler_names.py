"""A scheduler's names and words are in its own folder, and in the table, only.

That no other room imports a folder is a contract of pyproject.toml.
"""

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import weigh
from weigh.schedulers import KINDS

SOURCE = Path(weigh.__file__).parent
# most are of launchers of processes, which are not the scheduler: they start a task on
# several nodes, and number its ranks
ALLOWED = {
    "model/record.py": {"ngpus"},  # the default of a name that sites choose
    # clients like docker and ssh: the commands of any scheduler, not those of one
    "work_done_elsewhere.py": {"sbatch", "srun", "salloc", "qsub", "qrsh"},
    "flow/run/channel.py": {"SLURM_PROCID"},
    # jobs of any batch system, also of those that are not in the table
    "measure/memory/ledger.py": {"SLURM_JOB_ID", "SGE_TASK_ID"},
    "measure/ranks.py": {"SLURM_PROCID", "SLURM_STEP_NUM_TASKS"} | {"SLURM_STEP_ID"},
    "planning/launchers.py": {"srun"},
    "planning/make_plan.py": {"srun", "SLURM_CPUS_PER_TASK", "SLURM_NNODES"}
    | {"SLURM_NODEID"},
    # a room below the schedulers: job scripts are no task files, of PBS and LSF as well
    "sweep/task_file.py": {"SBATCH"},
}
# more words than the table has: options, accounting fields, other commands
OTHERS = "h_vmem|h_rt|s_rt|ngpus|qlogin|qrsh|salloc|--mem=|--gres|MaxRSS|SBATCH"


def words_of_schedulers() -> re.Pattern[str]:
    """Return a pattern for what only a scheduler's folder may write."""
    words = set()
    for kind in KINDS.values():
        words |= {kind.name, kind.title, kind.text.PREFIX, *kind.commands} - {""}
    names = "|".join(sorted(map(re.escape, words), key=len, reverse=True))
    return re.compile(rf"(?<![\w./-])(?:{names}|{OTHERS}|(?:SLURM|SGE)_\w+)(?![\w])")


WORDS = words_of_schedulers()
MAYBE = re.compile(WORDS.pattern.partition(")")[2].removesuffix(r"(?![\w])"))


def strings(tree: ast.AST) -> Iterator[str]:
    """Yield the strings of a module, without its docstrings."""
    documented = ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef
    docs = {
        id(node.body[0].value)
        for node in ast.walk(tree)
        if isinstance(node, documented)
        and node.body
        and isinstance(node.body[0], ast.Expr)
    }
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant) and id(node) not in docs:
            if isinstance(node.value, bytes):
                yield node.value.decode("latin-1")
            elif isinstance(node.value, str):
                yield node.value


def found_in(text: str) -> set[str]:
    """Return the words of schedulers in a module."""
    if not MAYBE.search(text):  # much faster than to parse it
        return set()
    return {word for one in strings(ast.parse(text)) for word in WORDS.findall(one)}


def test_no_room_but_the_schedulers_folders_knows_one_by_name() -> None:
    """All words that are allowed are there, too."""
    found = {}
    for path in sorted(SOURCE.rglob("*.py")):
        name = path.relative_to(SOURCE).as_posix()
        if not name.startswith("schedulers/") and not name.startswith("cli/"):
            found[name] = found_in(path.read_text())

    assert {name: words for name, words in found.items() if words} == ALLOWED


def test_the_command_line_chooses_by_no_name() -> None:
    """Help texts name schedulers in sentences, so only whole strings are choices."""
    found = {}
    for path in sorted((SOURCE / "cli").glob("*.py")):
        tree = ast.parse(path.read_text())
        choices = {one for one in strings(tree) if one in KINDS}
        if choices:
            found[path.name] = choices

    assert found == {}
