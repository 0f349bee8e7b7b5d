"""Rules for processes that end too early, and signals that reach no process."""

from collections.abc import Iterator

from weigh.model.lint import Finding
from weigh.schedulers.dialect import whole_number
from weigh.schedulers.lint.case import Case, Rule, error, warning
from weigh.schedulers.shell import Command

_TRIFLES = frozenset(
    {"", "echo", "printf", "date", "exit", "true", ":", "[", "[[", "test", "cd", "set"}
    | {"export", "trap", "disown", "unset", "hostname", "pwd"}
)
_SIGNALS = frozenset({"TERM", "USR1", "USR2", "INT", "CONT"})
_WAITS = frozenset({"wait", "srun", "mpirun", "mpiexec"})
_LONG = ("python", "Rscript", "julia", "perl", "matlab", "parallel", "java", "./")
_TRAP_WORDS = 3


def _left_behind(case: Case) -> Iterator[Finding]:
    """Find background commands that still run when the script ends."""
    behind: Command | None = None
    for command in case.body.commands:
        if command.background:
            behind = command
        elif command.name not in _TRIFLES:
            behind = None
    if behind is not None:
        effect = "in the background: the job ends with the script and kills it"
        yield error(behind, "no-wait", effect, "end the script with: wait")


def _deferred_trap(case: Case) -> Iterator[Finding]:
    trap = next(filter(_traps, case.body.named("trap")), None)
    if trap is None or any(case.body.named("wait")):
        return
    for command in case.body.commands:
        if command.line <= trap.line or command.background:
            continue
        if command.name.startswith(_LONG):
            effect = "bash runs the trap only after this command, and is killed before"
            fix = "run it with '& wait $!', and forward the signal"
            yield warning(command, "deferred-trap", effect, fix)
            return


def _signal_option(case: Case) -> Iterator[Finding]:
    option = case.option("signal")
    if option is None or case.tool != "sbatch" or not case.script.is_shell:
        return
    head, _, rest = option.value.rpartition(":")
    name = rest.partition("@")[0].upper().removeprefix("SIG")
    if "B" not in head.upper():
        if not any(case.body.named("srun")):
            effect = "only srun steps get the signal, and the script has none"
            fix = f"--signal=B:{rest}, and a trap with '& wait'"
            yield error(option, "signal-to-nobody", effect, fix)
    elif not any(case.body.named("exec")) and not any(
        name in " ".join(one.words).upper() for one in case.body.named("trap")
    ):
        effect = f"the script has no trap for {name}: it ends bash and the job early"
        yield warning(option, "signal-untrapped", effect, f"trap '...' {name}")


def _traps(command: Command) -> bool:
    names = {word.upper().removeprefix("SIG") for word in command.words[2:]}
    return len(command.words) >= _TRAP_WORDS and bool(names & _SIGNALS)


def _one_of_many(case: Case) -> Iterator[Finding]:
    """Find requested tasks and nodes that the script never uses."""
    if case.tool != "sbatch" or not case.script.is_shell:
        return
    launchers = ("srun", "mpirun", "mpiexec", "prun", "ibrun", "torchrun", "accelerate")
    text = " ".join(one.text for one in case.body.commands)
    if any(one in text for one in launchers):
        return
    for name, unit in (("ntasks", "tasks"), ("nodes", "nodes")):
        option = case.option(name)
        count = option.value.partition("-")[0] if option else ""
        if option and (whole_number(count) or 0) > 1:
            effect = f"the script runs once, on one node; {count} {unit} need srun"
            fix = "for threads: --cpus-per-task" if unit == "tasks" else ""
            yield warning(option, "no-srun", effect, fix)


def _options_behind(case: Case) -> Iterator[Finding]:
    """Find options after the script's name, which sbatch passes to the script."""
    for command in case.body.named("sbatch", "qsub"):
        after = False
        for word in command.words[1:]:
            if after and word.startswith("-") and len(word) > 1:
                effect = f"{word} after the script's name is an argument of the script"
                fix = f"{command.name} {word} ... before it"
                yield error(command, "option-behind-script", effect, fix)
                break
            after = after or word.endswith((".sh", ".job", ".slurm", ".sbatch", ".com"))


RULES: tuple[Rule, ...] = (
    _left_behind,
    _deferred_trap,
    _signal_option,
    _one_of_many,
    _options_behind,
)
