"""How sbatch reads the directives of a script: its options, and which are known.

The behaviour of sbatch was observed on 22.05.8.
"""

import itertools
from collections.abc import Iterator

from weigh.model.lint import LintFinding
from weigh.schedulers.lint.case import (
    ReadOptions,
    ScriptOption,
    most_similar_word,
    refused,
)
from weigh.schedulers.lint.values import (
    read_directive_lines,
    split_words,
    stray,
)
from weigh.schedulers.script import ScriptLine, ScriptText

PREFIX = "#SBATCH"

# ---- how sbatch reads directives: short options with a value, and flags
_SHORT, _SHORT_FLAGS = (
    dict(pair.split("=") for pair in text.split())
    for text in (
        """
    a=array A=account B=extra-node-info b=begin c=cpus-per-task C=constraint
    d=dependency D=chdir e=error F=nodefile G=gpus i=input J=job-name L=licenses
    M=clusters m=distribution n=ntasks N=nodes o=output p=partition q=qos S=core-spec
    t=time w=nodelist x=exclude
    """,
        """
    H=hold h=help I=immediate k=no-kill O=overcommit Q=quiet s=oversubscribe v=verbose
    V=version W=wait
    """,
    )
)
_OTHERS_WITH_VALUE = """
    acctg-freq batch bb bbf cluster cluster-constraint comment container container-id
    context cores-per-socket cpu-freq cpus-per-gpu deadline delay-boot export
    export-file extra gid gpu-bind gpu-freq gpus-per-node gpus-per-socket gpus-per-task
    gres gres-flags hint kill-on-invalid-dep mail-type mail-user mcs-label mem mem-bind
    mem-per-cpu mem-per-gpu mem-update mincpus network ntasks-per-core ntasks-per-gpu
    ntasks-per-node ntasks-per-socket ntasks-per-tres open-mode power prefer priority
    profile reservation resv-ports segment signal sockets-per-node switches
    tasks-per-node thread-spec threads-per-core time-min tmp tres-bind tres-per-task uid
    wait-all-nodes wckey wrap
"""
_OTHER_FLAGS = """
    consolidate-segments contiguous external-launcher ignore-pbs no-requeue parsable
    reboot requeue spread-job spread-segments stepmgr test-only usage use-min-nodes
"""
_MAYBE_VALUE = """
    exclusive get-user-env nice no-kill propagate oom-kill-step oversubscribe
"""
# SPANK plugins add these: shifter, pyxis, uenv
# known to no sbatch without its plugin: not reported, since the site may have it
_OF_PLUGINS = """
    image module volume entrypoint ccm uenv view repo no-container-mount-home
    no-container-entrypoint no-container-remap-root no-container-readonly x11 perf sdn
    enroot
"""
_WITH_VALUE = {*_SHORT.values(), *_OTHERS_WITH_VALUE.split()}
_KNOWN = sorted(
    {*_WITH_VALUE, *_SHORT_FLAGS.values(), *_OTHER_FLAGS.split(), *_MAYBE_VALUE.split()}
)
_ALIASES = {"tasks-per-node": "ntasks-per-node", "cluster": "clusters"}
_RENAMED = {"workdir": "chdir", "gpus-per-job": "gpus", "walltime": "time"}
_HETJOB = ("hetjob", "packjob")


def directive_lines(script: ScriptText) -> tuple[ScriptLine, ...]:
    """Return the lines that sbatch reads: those above the first command."""
    end = script.first_command or len(script.lines) + 1
    return tuple(one for one in script.lines[: end - 1] if one.text.startswith(PREFIX))


def read_options(script: ScriptText) -> ReadOptions:
    """Read the directives of the first component of a job."""
    lines = directive_lines(script)
    first = itertools.takewhile(
        lambda line: line.text.removeprefix(PREFIX).strip() not in _HETJOB, lines
    )
    return read_directive_lines([*first], _of_line, lines)


def _of_line(script_line: ScriptLine) -> Iterator[ScriptOption | LintFinding]:
    rest = script_line.text.removeprefix(PREFIX)
    words, is_open = split_words(rest, escape="\\")
    if is_open:
        yield refused(script_line, "stray-word", "a quote is not closed: refused")
        return
    begun = False
    while words:
        word = words.pop(0)
        if not word.startswith("-") or word == "-":
            yield stray(script_line, PREFIX, word, begun=begun)
            return
        begun, found = True, _named(script_line, word)
        if isinstance(found, LintFinding):
            yield found
            continue
        # None: the value is the next word, as in --mem 4G
        name, value = found
        if value is None and not words:
            yield refused(
                script_line, "option-value", f"{word} without a value: refused"
            )
            return
        if value is None:
            value = words.pop(0)
            word += f" {value}"
        yield ScriptOption(name, value, script_line.line, word)


def _named(script_line: ScriptLine, word: str) -> tuple[str, str | None] | LintFinding:
    """Return an option's name and value; None is the next word."""
    return (
        _long_option(script_line, word)
        if word[1] == "-"
        else _short_option(script_line, word)
    )


def _long_option(
    script_line: ScriptLine, word: str
) -> tuple[str, str | None] | LintFinding:
    written, equals, value = word[2:].partition("=")
    name = _completed(ScriptLine(script_line.line, word), written)
    if isinstance(name, LintFinding):
        return name
    if name in _WITH_VALUE:
        return name, value if equals else None
    if equals and name in _KNOWN and name not in _MAYBE_VALUE.split():
        return refused(script_line, "option-value", f"--{name} takes no value: refused")
    return name, value


def _short_option(
    script_line: ScriptLine, word: str
) -> tuple[str, str | None] | LintFinding:
    letter, value = word[1], word[2:]
    if letter in _SHORT_FLAGS:
        return _SHORT_FLAGS[letter], ""
    if letter not in _SHORT:
        fix = f"{PREFIX} -{word}" if len(value) > 1 else ""
        effect = f"sbatch has no option -{letter}: refused"
        return refused(script_line, "unknown-option", effect, fix)
    if word[1:].partition("=")[0] in _KNOWN:
        effect = f"one dash: read as -{letter} with {value!r}"
        return refused(script_line, "unknown-option", effect, f"{PREFIX} -{word}")
    return _SHORT[letter], value or None


def _completed(spot: ScriptLine, written: str) -> str | LintFinding:
    """Complete an abbreviated option, as getopt does."""
    # --mem-per is complete enough if only one option begins so
    begun = [name for name in _KNOWN if name.startswith(written)]
    if written in begun or len(begun) == 1:
        name = written if written in begun else begun[0]
        return _ALIASES.get(name, name)
    if begun:
        meant = "gpus" if written == "gpu" else most_similar_word(written, begun)
        effect = f"--{written} is ambiguous: refused"
        return refused(spot, "unknown-option", effect, f"did you mean --{meant}?")
    if written in _OF_PLUGINS.split() or written.startswith("container-"):
        return written
    meant = _RENAMED.get(written) or most_similar_word(written, _KNOWN)
    effect = f"sbatch has no option --{written}: refused"
    fix = f"did you mean --{meant}?" if meant else ""
    return refused(spot, "unknown-option", effect, fix)
