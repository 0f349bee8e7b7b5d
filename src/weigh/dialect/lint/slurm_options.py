"""``#SBATCH`` lines read as sbatch reads them.

The options are those that sbatch 22.05.8 knows, and those of the releases up to 25.05;
how lines are cut was seen on 22.05.8.
"""

from collections.abc import Iterator

import msgspec

from weigh.dialect.lint.case import Option, did_you_mean, nearest, note, refused
from weigh.dialect.script import Line, Script
from weigh.model.lint import Finding

PREFIX = "#SBATCH"

_HETJOB = frozenset({"hetjob", "packjob"})

# short options with a value, and what they are short for
_SHORT_PAIRS = """
    a=array A=account B=extra-node-info b=begin c=cpus-per-task C=constraint
    d=dependency D=chdir e=error F=nodefile G=gpus i=input J=job-name L=licenses
    M=clusters m=distribution n=ntasks N=nodes o=output p=partition q=qos S=core-spec
    t=time w=nodelist x=exclude
"""
_FLAG_PAIRS = """
    H=hold h=help I=immediate k=no-kill O=overcommit Q=quiet s=oversubscribe v=verbose
    V=version W=wait
"""
_SHORT = dict(pair.split("=") for pair in _SHORT_PAIRS.split())
_SHORT_FLAGS = dict(pair.split("=") for pair in _FLAG_PAIRS.split())
_OTHERS_WITH_VALUE = """
    acctg-freq batch bb bbf cluster cluster-constraint comment container container-id
    context cores-per-socket cpu-freq cpus-per-gpu deadline delay-boot export
    export-file extra gid gpu-bind gpu-freq gpus-per-node gpus-per-socket gpus-per-task
    gres gres-flags hint kill-on-invalid-dep mail-type mail-user mcs-label mem mem-bind
    mem-per-cpu mem-per-gpu mincpus network ntasks-per-core ntasks-per-gpu
    ntasks-per-node ntasks-per-socket ntasks-per-tres open-mode power prefer priority
    profile reservation resv-ports segment signal sockets-per-node switches
    tasks-per-node thread-spec threads-per-core time-min tmp tres-bind tres-per-task uid
    wait-all-nodes wckey wrap
"""
_OTHER_FLAGS = """
    consolidate-segments contiguous external-launcher ignore-pbs no-requeue parsable
    reboot requeue spread-job spread-segments stepmgr test-only usage use-min-nodes
"""
_WITH_VALUE = frozenset((*_SHORT.values(), *_OTHERS_WITH_VALUE.split()))
_FLAGS = frozenset((*_SHORT_FLAGS.values(), *_OTHER_FLAGS.split()))
_ALIASES = {"tasks-per-node": "ntasks-per-node", "cluster": "clusters"}
_MAYBE_VALUE = frozenset(
    {"exclusive", "get-user-env", "nice", "no-kill", "propagate"}
    | {"oom-kill-step", "oversubscribe"}
)
_KNOWN = tuple(sorted(_WITH_VALUE | _FLAGS | _MAYBE_VALUE))


class Read(msgspec.Struct, frozen=True):
    """What sbatch reads of a script, and what it would stumble over."""

    options: tuple[Option, ...]
    findings: tuple[Finding, ...]
    lines: tuple[Line, ...] = ()


def directive_lines(script: Script) -> tuple[Line, ...]:
    """Give the lines that sbatch reads: those above the first command."""
    end = script.first_command or len(script.lines) + 1
    return tuple(one for one in script.lines[: end - 1] if one.text.startswith(PREFIX))


def read_options(script: Script) -> Read:
    """Read the directives of *script*."""
    options: list[Option] = []
    findings: list[Finding] = []
    lines = directive_lines(script)
    for line in lines:
        rest = line.text.removeprefix(PREFIX)
        if rest.strip() in _HETJOB:
            break  # what follows is about another part of the job
        if rest and not rest[0].isspace() and rest[0] == "-":
            effect = "no space after #SBATCH: sbatch 22.05 reads it all the same"
            findings.append(note(line, "no-space", effect, f"{PREFIX} {rest}"))
        for one in _of_line(line, rest):
            if isinstance(one, Option):
                options.append(one)
            else:
                findings.append(one)
    return Read(tuple(options), tuple(findings), lines)


def split_words(rest: str) -> list[str] | None:
    """Cut the rest of a line as sbatch does; None where a quote is left open.

    ``#`` outside quotes begins a comment, even within a word.
    """
    words: list[str] = []
    word, quote, begun = "", "", False
    characters = iter(rest)
    for character in characters:
        if quote:
            quote = "" if character == quote else quote
            word += "" if not quote else character
        elif character in "'\"":
            quote, begun = character, True
        elif character == "\\":
            following = next(characters, "")
            word, begun = word + following, begun or bool(following)
        elif character == "#":
            break
        elif character in " \t":
            if begun:
                words.append(word)
            word, begun = "", False
        else:
            word, begun = word + character, True
    if quote:
        return None
    return [*words, word] if begun else words


def _of_line(line: Line, rest: str) -> Iterator[Option | Finding]:
    words = split_words(rest)
    if words is None:
        yield refused(line, "open-quote", "a quote is not closed: refused")
        return
    place = 0
    while place < len(words):
        word = words[place]
        following = words[place + 1] if place + 1 < len(words) else None
        place += 1
        if word.startswith("--") and len(word) > len("--"):
            read, taken = _long(line, word, following)
        elif word.startswith("-") and len(word) > 1:
            read, taken = _short(line, word, following)
        else:
            yield _no_option(line, word, words[: place - 1])
            return
        place += taken
        yield read


def _no_option(line: Line, word: str, before: list[str]) -> Finding:
    if word and not word[0].isascii():
        return refused(
            line, "dash", f"{word[0]!r} is no ASCII '-': refused", "type -- again"
        )
    if before and not line.text.removeprefix(PREFIX).lstrip().startswith(word):
        effect = f"{word!r} is apart from its option: refused"
        return refused(line, "stray-word", effect, "no spaces within a value")
    cure = f"#SBATCH --{word}" if word[:1].isalpha() else "#SBATCH --option=value"
    return refused(line, "no-option", f"{word!r} is no option: refused", cure)


def _long(line: Line, word: str, following: str | None) -> tuple[Option | Finding, int]:
    written, equals, value = word[2:].partition("=")
    name, fault = _full_name(line, word, written)
    if fault is not None:
        return fault, 0
    name = _ALIASES.get(name, name)
    if name in _WITH_VALUE:
        if equals:
            return Option(name, value, line.line, word, f"--{written}="), 0
        if following is None:
            return refused(line, "no-value", f"--{name} without a value: refused"), 0
        text = f"{word} {following}"
        return Option(name, following, line.line, text, f"--{written} "), 1
    if equals and name not in _MAYBE_VALUE:
        return refused(line, "value", f"--{name} takes no value: refused"), 0
    return Option(name, value, line.line, word, f"--{written}="), 0


def _full_name(line: Line, word: str, written: str) -> tuple[str, Finding | None]:
    """Complete an option that is written as the beginning of one, as getopt does."""
    if written in _KNOWN:
        return written, None
    begun = [name for name in _KNOWN if name.startswith(written)]
    if len(begun) == 1:
        return begun[0], None
    spot = Line(line.line, word)
    if begun:
        effect = f"--{written} is ambiguous: refused"
        meant = "gpus" if written == "gpu" else nearest(written, begun)
        likely = f"did you mean --{meant}?"
        return "", refused(spot, "ambiguous-option", effect, likely)
    renamed = {"workdir": "chdir", "gpus-per-job": "gpus", "walltime": "time"}
    cure = did_you_mean(written, list(_KNOWN))
    if written in renamed:
        cure = f"did you mean {renamed[written]}?"
    cure = cure.replace("did you mean ", "did you mean --")
    cure = "" if cure.startswith("there are") else cure
    effect = f"sbatch has no --{written}: refused"
    return "", refused(spot, "unknown-option", effect, cure)


def _short(
    line: Line, word: str, following: str | None
) -> tuple[Option | Finding, int]:
    letter, value = word[1], word[2:]
    if letter in _SHORT_FLAGS:
        return Option(_SHORT_FLAGS[letter], "", line.line, word, f"-{letter}"), 0
    name = _SHORT.get(letter)
    if name is None:
        cure = f"#SBATCH -{word}" if len(value) > 1 else ""
        effect = f"sbatch has no -{letter}: refused"
        return refused(line, "unknown-option", effect, cure), 0
    if word[1:].partition("=")[0] in _KNOWN:
        effect = f"one dash: -{letter} with {value!r}"
        return refused(line, "one-dash", effect, f"#SBATCH -{word}"), 0
    if value:
        return Option(name, value, line.line, word, f"-{letter} "), 0
    if following is None:
        return refused(line, "no-value", f"-{letter} without a value: refused"), 0
    text = f"{word} {following}"
    return Option(name, following, line.line, text, f"-{letter} "), 1
