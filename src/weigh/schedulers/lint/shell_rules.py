"""Rules for what bash cannot read, hidden failures, and processes that end early."""

import re
from collections.abc import Iterator

from weigh.model.lint import LintFinding
from weigh.schedulers.hidden_exit import DROP_THE_BACKGROUND, hidden_exit
from weigh.schedulers.lint.case import LintCase, Rule, note, problem
from weigh.schedulers.shell import ShellCommand

_SHELLS = frozenset({"bash", "sh", "dash", ""})
_SAID = re.compile(r"line (\d+): (?:warning: )?(.*)")
_DOCUMENT = re.compile(r"here-document at line (\d+) delimited by end-of-file")


def _syntax_findings(lint_case: LintCase) -> Iterator[LintFinding]:
    """Report where bash itself cannot read the script."""
    script = lint_case.script
    # carriage returns and NULs have findings of their own, and confuse bash -n
    if script.program not in _SHELLS or script.carriage_returns or script.nul:
        return
    said = lint_case.facts.syntax.get(
        "\n".join(one.text for one in script.lines) + "\n"
    )
    found = _SAID.search(said) if said else None
    if found is None:
        return
    number, words = int(found[1]), found[2]
    document = _DOCUMENT.search(words)
    # bash names the end of the file: the beginning is what has to be looked at
    if document:
        number, words = int(document[1]), "this here-document has no end"
    line = script.lines[min(number, len(script.lines)) - 1]
    effect = f"bash ends the job here: {words}"
    if document:
        effect = f"{words}: all that follows is its text"
    yield problem(line, "syntax", effect, "bash -n reads a script and runs nothing")


def _hidden_exit(lint_case: LintCase) -> Iterator[LintFinding]:
    """Find a program whose failure the exit code of the script hides."""
    if lint_case.script.program not in _SHELLS:
        return
    text = "\n".join(one.text for one in lint_case.script.lines)
    hidden = hidden_exit(text, lint_case.script.interpreter)
    if hidden is not None and hidden.cure != DROP_THE_BACKGROUND:  # that is no-wait's
        yield note(hidden, "hidden-exit", hidden.effect, hidden.cure)


_TRIFLES = frozenset(
    {"", "echo", "printf", "date", "exit", "true", ":", "[", "[[", "test", "cd", "set"}
    | {"export", "trap", "disown", "unset", "hostname", "pwd"}
)
_SIGNALS = frozenset({"TERM", "USR1", "USR2", "INT", "CONT"})
_STARTERS = ("srun", "mpirun", "mpiexec", "singularity", "apptainer", "torchrun")
_LONG = ("python", "Rscript", "julia", "perl", "matlab", "parallel", "java", "./")
_TRAP_WORDS = 3


def _left_behind(lint_case: LintCase) -> Iterator[LintFinding]:
    """Find background commands that still run when the script ends."""
    behind: ShellCommand | None = None
    for command in lint_case.body.steps:
        if command.background:
            behind = command
        # a real command behind it, or `wait`: the script goes on for some time
        elif command.name not in _TRIFLES:
            behind = None
    if behind is not None:
        effect = "in the background: the job ends with the script and kills it"
        yield problem(behind, "no-wait", effect, "end the script with: wait")


def _signal_to_shell(lint_case: LintCase) -> str:
    """Return the signal that the scheduler sends to the shell before the end."""
    option = lint_case.option("signal")
    if option is not None:
        head, _, rest = option.value.rpartition(":")
        name = rest.partition("@")[0].upper().removeprefix("SIG")
        return name if "B" in head.upper() else ""
    return "USR1" if lint_case.option("notify", "l:s_rt") is not None else ""


def _deferred_trap(lint_case: LintCase) -> Iterator[LintFinding]:
    traps = [one for one in lint_case.body.named("trap") if _trapped(one)]
    # with `wait` bash runs a trap at once
    if not traps or any(lint_case.body.named("wait")):
        return
    trap, names = traps[0], {name for one in traps for name in _trapped(one)}
    for command in lint_case.body.commands:
        if command.line <= trap.line or command.background:
            continue
        if command.name == "srun" and names == {"TERM"}:
            continue  # its tasks get the signal themselves, and bash runs the trap next
        if command.name.startswith((*_LONG, *_STARTERS)):
            effect = "bash runs the trap only after this command, and is killed before"
            fix = "run it with '& wait $!', and forward the signal"
            make = problem if _signal_to_shell(lint_case) in names else note
            yield make(command, "deferred-trap", effect, fix)
            return


def _signal_option(lint_case: LintCase) -> Iterator[LintFinding]:
    option = lint_case.option("signal")
    if option is None or lint_case.tool != "sbatch" or not lint_case.script.is_shell:
        return
    head, _, rest = option.value.rpartition(":")
    name = rest.partition("@")[0].upper().removeprefix("SIG")
    # without B: sbatch sends the signal to the steps, not to the shell
    if "B" not in head.upper():
        text = " ".join(token.text for token in lint_case.body.tokens)
        if not any(one in text for one in ("srun", "mpirun", "mpiexec")):
            effect = "only srun steps get the signal, and the script has none"
            fix = f"--signal=B:{rest}, and a trap with '& wait'"
            yield problem(option, "signal-to-nobody", effect, fix)
    elif not any(lint_case.body.named("exec", "source", ".")) and not any(
        name in " ".join(one.words).upper() for one in lint_case.body.named("trap")
    ):
        effect = f"the script has no trap for {name}: it ends bash and the job early"
        yield problem(option, "signal-untrapped", effect, f"trap '...' {name}")


def _no_signal(lint_case: LintCase) -> Iterator[LintFinding]:
    """Find traps for a warning that Grid Engine is not asked to send."""
    if lint_case.tool != "qsub" or lint_case.option("notify", "l:s_rt") is not None:
        return
    for trap in lint_case.body.named("trap"):
        if "USR1" in _trapped(trap) and lint_case.option("l:h_rt") is not None:
            effect = "h_rt kills without a warning: USR1 is never sent"
            yield problem(trap, "no-soft-limit", effect, "add -l s_rt=... below h_rt")
            return


def _trapped(command: ShellCommand) -> set[str]:
    names = {word.upper().removeprefix("SIG") for word in command.words[2:]}
    return names & _SIGNALS if len(command.words) >= _TRAP_WORDS else set()


RULES: tuple[Rule, ...] = (
    _hidden_exit,
    _syntax_findings,
    _left_behind,
    _deferred_trap,
    _signal_option,
    _no_signal,
)
