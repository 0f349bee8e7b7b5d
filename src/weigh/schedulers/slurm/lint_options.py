"""Lint for ``#SBATCH`` lines: how sbatch reads them, and values that it misreads.

The behaviour of sbatch was observed on 22.05.8.
"""

import re
from collections.abc import Iterator

import msgspec

from weigh.errors import FormatError
from weigh.model.lint import Finding
from weigh.schedulers.dialect import positive_number, whole_number
from weigh.schedulers.lint.case import (
    Case,
    Option,
    Read,
    Rule,
    did_you_mean,
    nearest,
    note,
    problem,
    refused,
)
from weigh.schedulers.lint.common import switched_off
from weigh.schedulers.lint.path_rules import holds_placeholder
from weigh.schedulers.script import Line, Script, read_script
from weigh.schedulers.slurm import text as slurm_text
from weigh.units import DAY, HOUR, MIB, MINUTE, format_size

PREFIX = "#SBATCH"

_HETJOB = frozenset({"hetjob", "packjob"})

# short options with a value, and their long names
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
_WITH_VALUE = frozenset((*_SHORT.values(), *_OTHERS_WITH_VALUE.split()))
_FLAGS = frozenset((*_SHORT_FLAGS.values(), *_OTHER_FLAGS.split()))
# SPANK plugins add these: shifter, pyxis, uenv
_OF_PLUGINS = frozenset(
    {"image", "module", "volume", "entrypoint", "ccm", "uenv", "view", "repo"}
    | {"no-container-mount-home", "no-container-entrypoint", "no-container-remap-root"}
    | {"no-container-readonly", "x11", "perf", "sdn", "enroot"}
)
_ALIASES = {"tasks-per-node": "ntasks-per-node", "cluster": "clusters"}
_MAYBE_VALUE = frozenset(
    {"exclusive", "get-user-env", "nice", "no-kill", "propagate"}
    | {"oom-kill-step", "oversubscribe"}
)
_KNOWN = tuple(sorted(_WITH_VALUE | _FLAGS | _MAYBE_VALUE))


def directive_lines(script: Script) -> tuple[Line, ...]:
    """Return the lines that sbatch reads: those above the first command."""
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
            break  # the lines below describe another component of the job
        if rest and not rest[0].isspace() and rest[0] == "-":
            effect = "no space after #SBATCH: sbatch 22.05 reads it nevertheless"
            findings.append(note(line, "no-space", effect, f"{PREFIX} {rest}"))
        for one in _of_line(line, rest):
            if isinstance(one, Option):
                options.append(one)
            else:
                findings.append(one)
    return Read(tuple(options), tuple(findings), lines)


def split_words(rest: str) -> list[str] | None:
    """Split the rest of a line as sbatch does; None if a quote is not closed.

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
            line, "dash", f"{word[0]!r} is not an ASCII '-': refused", "type -- again"
        )
    if holds_placeholder(line.text.removeprefix(PREFIX)):
        effect = "has a placeholder of a template: refused"
        return refused(line, "placeholder", effect)
    if before and not line.text.removeprefix(PREFIX).lstrip().startswith(word):
        effect = f"{word!r} is separated from its option: refused"
        return refused(line, "stray-word", effect, "no spaces within a value")
    fix = f"#SBATCH --{word}" if word[:1].isalpha() else "#SBATCH --option=value"
    return refused(line, "no-option", f"{word!r} is not an option: refused", fix)


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
    """Complete an abbreviated option, as getopt does."""
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
    if written in _OF_PLUGINS or written.startswith("container-"):
        effect = f"--{written} is an option of a site's plugin: refused without it"
        return "", note(spot, "plugin-option", effect)
    renamed = {"workdir": "chdir", "gpus-per-job": "gpus", "walltime": "time"}
    fix = did_you_mean(written, list(_KNOWN))
    if written in renamed:
        fix = f"did you mean {renamed[written]}?"
    fix = fix.replace("did you mean ", "did you mean --")
    fix = "" if fix.startswith("known: ") else fix
    effect = f"sbatch has no option --{written}: refused"
    return "", refused(spot, "unknown-option", effect, fix)


def _short(
    line: Line, word: str, following: str | None
) -> tuple[Option | Finding, int]:
    letter, value = word[1], word[2:]
    if letter in _SHORT_FLAGS:
        return Option(_SHORT_FLAGS[letter], "", line.line, word, f"-{letter}"), 0
    name = _SHORT.get(letter)
    if name is None:
        fix = f"#SBATCH -{word}" if len(value) > 1 else ""
        effect = f"sbatch has no option -{letter}: refused"
        return refused(line, "unknown-option", effect, fix), 0
    if word[1:].partition("=")[0] in _KNOWN:
        effect = f"one dash: read as -{letter} with {value!r}"
        return refused(line, "one-dash", effect, f"#SBATCH -{word}"), 0
    if value:
        return Option(name, value, line.line, word, f"-{letter} "), 0
    if following is None:
        return refused(line, "no-value", f"-{letter} without a value: refused"), 0
    text = f"{word} {following}"
    return Option(name, following, line.line, text, f"-{letter} "), 1


_MEANT = re.compile(r"\s*(?:(?P<hashes>#+)(?P<gap>\s*))?(?P<word>\w+)\s*(?=-)")
_WORD = "SBATCH"
_ALIKE = 0.75
_PBS = "#PBS"


_OF_ENGINES = re.compile(r"\s*(?:\{\{|\{%|<%)")


def _ignored(case: Case) -> Iterator[Finding]:
    first = case.script.first_command or len(case.script.lines) + 1
    off: list[Line] = []
    if first <= len(case.script.lines) and _OF_ENGINES.match(
        case.script.lines[first - 1].text
    ):
        effect = "a template that a program fills in: no job script yet"
        yield problem(case.script.lines[first - 1], "placeholder", effect)
        return
    for line in case.script.lines:
        if line.line in case.body.documents:
            continue  # the script writes another script
        if line.text.startswith(PREFIX):
            if line.line > first and line.text.removeprefix(PREFIX)[:1] in " \t-":
                effect = f"after the first command (line {first}): ignored"
                fix = "move it above all commands"
                yield problem(line, "directive-after-command", effect, fix)
            continue
        found = _MEANT.match(line.text)
        if found and found["hashes"] and _is_meant(found, line.text[found.end() :]):
            if _is_off(found):
                off.append(Line(line.line, line.text))
            else:
                yield _passed_over(line, found)
        elif found and found["word"] == _WORD:
            effect = "no '#' before it: bash takes it for a command"
            yield problem(line, "misspelled-directive", effect, f"{PREFIX} ...")
    yield from switched_off(case, off, lambda text: read_options(read_script(text)))


def _is_off(found: re.Match[str]) -> bool:
    """Return whether a directive is switched off: ``##SBATCH``, ``#xSBATCH``."""
    word = found["word"]
    if word != _WORD:
        return word.endswith(_WORD) and word != f"S{_WORD}"
    return len(found["hashes"]) > 1


def _passed_over(line: Line, found: re.Match[str]) -> Finding:
    ignored = "sbatch ignores this line"
    if found["word"] != _WORD:
        effect = f"{found['hashes']}{found['gap']}{found['word']}: {ignored}"
        code = "misspelled-directive"
        return problem(line, code, effect, f"write {PREFIX}")
    if found["gap"] and len(found["hashes"]) == 1:
        return problem(line, "space-in-directive", f"a space after '#': {ignored}")
    effect = f"spaces before '#': {ignored}"
    return problem(line, "indented-directive", effect, "begin it in the first column")


def _is_meant(found: re.Match[str], rest: str) -> bool:
    word = found["word"]
    if word == _WORD:
        return True
    if not word.isupper() and not all(one.startswith("-") for one in rest.split()):
        return False  # `# sbatch --array=1-9 job.sh` is a usage comment
    if word.upper() == _WORD:
        return True
    if found["gap"] and not word.isupper():
        return False
    import difflib  # noqa: PLC0415 - only for a comment that looks like a directive

    return difflib.SequenceMatcher(None, word.upper(), _WORD).ratio() >= _ALIKE


def _continued(case: Case) -> Iterator[Finding]:
    for line in case.script.lines:
        if line.text.startswith(PREFIX) and line.text.rstrip().endswith("\\"):
            effect = "a directive cannot continue on the next line: that is a command"
            fix = "write #SBATCH on each line"
            yield problem(line, "continued-directive", effect, fix)


def _other_dialect(case: Case) -> Iterator[Finding]:
    pbs = next((one for one in case.script.lines if one.text.startswith(_PBS)), None)
    if pbs is not None:
        yield note(pbs, "pbs", "sbatch reads #PBS lines as well")


MEMORY = ("mem", "mem-per-cpu", "mem-per-gpu")

_TIMES = ("time", "time-min")
_TWO_FIELDS = re.compile(r"([0-9]{1,9}):([0-9]{2})")
_TOO_LITTLE = 16 * MIB  # no program worth a job runs in it
_LIKELY_GIB = 256  # a bare --mem up to this was probably meant in GiB
_LIKELY_HOURS = frozenset({1, 2, 3, 4, 5, 6, 8, 12, 24, 36, 48, 72, 96, 168})
# the look-ahead prevents a number from matching as a type
_TYPE = r"(?P<type>(?=[^:=(]*[^:=(0-9])[^:=(]+)"
_COUNT = r"([0-9]{1,9})"
_GRES = re.compile(rf"(?:gres[/:])?gpu(?::{_TYPE})?(?::{_COUNT})?")
_TYPED = re.compile(rf"(?:{_TYPE}:)?{_COUNT}")
_MAILS = (
    *("NONE", "BEGIN", "END", "FAIL", "REQUEUE", "ALL", "INVALID_DEPEND", "STAGE_OUT"),
    *("TIME_LIMIT", "TIME_LIMIT_90", "TIME_LIMIT_80", "TIME_LIMIT_50", "ARRAY_TASKS"),
)
_SIGNALS = (
    *("HUP", "INT", "QUIT", "KILL", "USR1", "USR2", "PIPE", "ALRM", "TERM", "CHLD"),
    *("CONT", "STOP", "TSTP", "TTIN", "TTOU", "URG", "XCPU", "XFSZ"),
)
_SIGNAL = re.compile(r"(?:[BR]{1,2}:)?(?:SIG)?(\w+)(?:@\d+)?", re.IGNORECASE)
_COUNTS = ("cpus-per-task", "ntasks", "ntasks-per-node", "cpus-per-gpu", "mincpus")
_NODES = re.compile(r"\+?\d[\d,:]*[kKmM]?(?:-\d[\d,:]*[kKmM]?)?")
_NUMBER = r"\+?\d+"
_MOMENT = r"(?:now|today|tomorrow|midnight|noon|fika|teatime|elevenses|[^a-z]).*"
# what sbatch 22.05 takes; later versions know a few words more
_CHOICES = {
    "exclusive": "|user|mcs|topo|exclusive",
    "open-mode": "append|truncate|a|t",
    "hint": "compute_bound|memory_bound|multithread|nomultithread|help",
    "kill-on-invalid-dep": "yes|no",
    "no-kill": "|off",
    "profile": r"(?:(?:all|none|energy|task|lustre|network|filesystem),?)+",
    "begin": _MOMENT,
    "deadline": _MOMENT,
    "ntasks-per-core": _NUMBER,
    "ntasks-per-socket": _NUMBER,
    "threads-per-core": _NUMBER,
    "core-spec": _NUMBER,
    "switches": r"\d+(?:@.+)?",
}
_LITERAL = re.compile(r"\$\{?\w|\$\(|`")
_KEEPS_DOLLAR = ("comment", "wrap", "export")  # these jobs need little memory


class Gpus(msgspec.Struct, frozen=True):
    """The GPUs that an option requests; ``type`` is empty for any type."""

    type: str
    count: int


def memory_of(option: Option | None) -> int | None:
    """Read a size in bytes; None if there is none or sbatch would reject it."""
    try:
        return None if option is None else slurm_text.parse_memory(option.value)
    except FormatError:
        return None


def gpus_of(option: Option | None) -> Gpus | None:
    """Read the GPUs of ``--gres`` or one of ``--gpus...``."""
    if option is None:
        return None
    if option.name != "gres":
        found = _TYPED.fullmatch(option.value)
        if found is None and re.fullmatch(r"[A-Za-z][\w-]*", option.value):
            return Gpus(option.value, 1)
        return Gpus(found["type"] or "", int(found[2])) if found else None
    for part in option.value.split(","):
        found = _GRES.fullmatch(part)
        if found:
            return Gpus(found["type"] or "", int(found[2] or 1))
    return None


def _times(case: Case) -> Iterator[Finding]:
    for option in _last(case, _TIMES):
        try:
            seconds = slurm_text.parse_time(option.value)
        except FormatError:
            effect = f"{option.value!r} is not a Slurm time: refused"
            yield refused(option, "time", effect, "write 01:30:00 or 1-12:00:00")
            continue
        if option.value.strip("0:-") == "":
            effect = "requests no limit: refused or never started if the queue has one"
            yield note(option, "time-zero", effect)
        elif _TWO_FIELDS.fullmatch(option.value):
            yield _two_fields(option)
        elif (hours := whole_number(option.value) or 0) in _LIKELY_HOURS:
            fix = f"{hours} hours are {_clock(hours * HOUR)}"
            yield note(option, "time-in-minutes", f"is {_minutes(hours)}", fix)
        elif seconds is None:
            yield note(option, "time-unlimited", "requests no limit")


def _two_fields(option: Option) -> Finding:
    found = _TWO_FIELDS.fullmatch(option.value)
    first, second = (int(found[1]), int(found[2])) if found else (0, 0)
    rest = f" {second} s" if second else ""
    hours = first * HOUR + second * MINUTE
    meant = "a day is" if hours == DAY else f"{first} hours are"
    if second:
        meant = f"{first} h {second} m is"
    days = f" or {hours // DAY}-0" if hours % DAY == 0 and hours else ""
    fix = f"{meant} {_clock(hours)}{days}"
    make = problem if hours and hours % DAY == 0 else note  # nobody wants 24 minutes
    return make(option, "time-in-minutes", f"is {_minutes(first)}{rest}", fix)


def _clock(seconds: int) -> str:
    return f"{seconds // HOUR:02d}:{seconds % HOUR // MINUTE:02d}:00"


def _minutes(count: int) -> str:
    return "1 minute" if count == 1 else f"{count} minutes"


def _sizes(case: Case) -> Iterator[Finding]:
    requested = _last(case, MEMORY)
    if len(requested) > 1:
        names = " and ".join(f"--{one.name}" for one in requested)
        effect = f"{names} exclude each other: refused"
        yield refused(requested[-1], "memory-twice", effect, "keep one of them")
    for option in (*requested, *_last(case, ("tmp",))):
        size = memory_of(option)
        if size is None:
            effect = f"{option.value!r} is not a Slurm size: refused"
            yield refused(option, "memory", effect, _size_fix(option.value))
        elif size == 0 and option.name == "mem":
            yield note(option, "memory-zero", "is all memory of the node")
        elif 0 < (whole_number(option.value) or 0) <= _LIKELY_GIB:
            fix = f"{option.value} GiB are {option.value}G"
            make = problem if size <= _TOO_LITTLE else note
            yield make(option, "memory-in-mib", f"is {format_size(size)}", fix)


def _size_fix(value: str) -> str:
    found = re.fullmatch(r"(\d+)(?:[.,](\d+))?\s*([KMGT])i?B?", value, re.IGNORECASE)
    if not found:
        return "write it like 500M or 4G"
    if not found[2]:
        return f"write {found[1]}{found[3].upper()}"
    smaller = {"K": "K", "M": "K", "G": "M", "T": "G"}[found[3].upper()]
    number = float(f"{found[1]}.{found[2]}") * 1024
    return f"whole numbers only: {round(number)}{smaller}"


def _gpus(case: Case) -> Iterator[Finding]:
    for option in case.options:
        if option.name == "gres":
            yield from _gres(option)
        elif option.name.startswith("gpus") and gpus_of(option) is None:
            effect = f"{option.value!r} is not a number of GPUs: refused"
            turned = re.fullmatch(r"(\d+):([A-Za-z]\w*)", option.value)
            fix = f"type first: {turned[2]}:{turned[1]}" if turned else ""
            yield refused(option, "gpus", effect, fix)
    alone = case.option("gpus-per-task")
    if alone and not case.option("ntasks", "gpus", "ntasks-per-node"):
        effect = "--gpus-per-task needs --ntasks or --gpus: refused"
        yield refused(alone, "gpus-per-task", effect, "add --ntasks=1")


def _gres(option: Option) -> Iterator[Finding]:
    for part in option.value.split(","):
        if _GRES.fullmatch(part):
            if part.endswith(":0"):
                yield note(option, "no-gpu", "requests no GPU")
            continue
        if re.fullmatch(r"(?:gpus|GPUS?|cuda|nvidia)(?:[:=].*)?", part):
            effect = f"{part} is not a Slurm resource: refused"
            rest = part.partition(":")[2]
            yield refused(option, "gres", effect, f"gpu:{rest}" if rest else "gpu:1")
            continue
        turned = re.fullmatch(r"gpu[:=](\d+)(?::([A-Za-z]\w*))?", part)
        bare = re.fullmatch(r"([A-Za-z]\w*):(\d+)", part)
        if turned:
            kind = f"{turned[2]}:" if turned[2] else ""
            effect = f"{part} is not a Slurm resource: refused"
            yield refused(option, "gres", effect, f"gpu:{kind}{turned[1]}")
        elif bare and re.fullmatch(r"[avhlpktq]\d+\w*|rtx\w*", bare[1], re.IGNORECASE):
            effect = f"{bare[1]} is a GPU type, not a resource: refused"
            yield refused(option, "gres", effect, f"gpu:{part}")


def _mail(case: Case) -> Iterator[Finding]:
    kinds, user = case.option("mail-type"), case.option("mail-user")
    if user is not None and kinds is None:
        effect = "no mail is sent without --mail-type"
        yield note(user, "mail-without-type", effect, "add --mail-type=END,FAIL")
    events = kinds.value.split(",") if kinds else []
    unknown = [one for one in events if one.upper() not in _MAILS]
    for kind in unknown:
        fix, effect = did_you_mean(kind, list(_MAILS)), f"{kind!r} is not an event"
        if len(unknown) == len(events):
            yield refused(kinds, "mail-type", f"{effect}: refused", fix)
        else:
            yield problem(kinds, "mail-type", f"{effect}: ignored, or refused", fix)


def _signals(case: Case) -> Iterator[Finding]:
    option = case.option("signal")
    found = _SIGNAL.fullmatch(option.value) if option else None
    if option is None:
        return
    if not found or not (found[1].isdecimal() or found[1].upper() in _SIGNALS):
        effect = f"{option.value!r} is not a signal: refused"
        yield refused(option, "signal", effect, "write it like B:USR1@120")


def _counts(case: Case) -> Iterator[Finding]:
    for option in _last(case, _COUNTS):
        if not positive_number(option.value.removeprefix("+")):
            if option.value.startswith("=") and not option.written.startswith("--"):
                continue  # another rule reports this for every short option
            effect = f"{option.value!r} is not a whole number: refused"
            yield refused(option, "count", effect)


def _nodes(case: Case) -> Iterator[Finding]:
    option = case.option("nodes")
    if option is None or option.value.startswith("="):
        return
    if not _NODES.fullmatch(option.value):
        effect = f"{option.value!r} is not a number of nodes: refused"
        yield refused(option, "count", effect)
        return
    least, _, most = option.value.partition("-")
    if (whole_number(most) or 0) < (whole_number(least) or 0) and most:
        effect = f"at most {most} nodes, and at least {least}: refused"
        yield refused(option, "count", effect, f"{most}-{least}")


def _choices(case: Case) -> Iterator[Finding]:
    """Find words that are none of those that an option knows."""
    for name, pattern in _CHOICES.items():
        option = case.option(name)
        if option is None or re.fullmatch(pattern, option.value, re.IGNORECASE):
            continue
        if not option.value.startswith("=") and not _LITERAL.search(option.value):
            known = pattern.replace("|", ", ") if pattern.isascii() else ""
            known = known if re.fullmatch(r"[\w, ]+", known) else ""
            effect = f"{option.value!r} is no value of --{name}: refused"
            yield refused(option, "choice", effect, f"one of {known}" if known else "")


def _together(case: Case) -> Iterator[Finding]:
    """Find options that need, or exclude, each other."""
    for name in ("mem-per-gpu", "ntasks-per-gpu"):
        option = case.option(name)
        if option is not None and not _asks_for_gpus(case):
            effect = f"--{name} without a request of GPUs: refused"
            yield refused(option, "no-gpu", effect, "add --gpus=1")
    each, by_gpu = case.option("cpus-per-task"), case.option("cpus-per-gpu")
    if each and by_gpu:
        effect = "--cpus-per-gpu and --cpus-per-task exclude each other: refused"
        yield refused(by_gpu, "count", effect, "keep one of them")
    least, most = (_limit(case.option(name)) for name in ("time-min", "time"))
    if least and most and least > most:
        effect = "--time-min is more than --time: refused"
        yield refused(case.option("time-min"), "time", effect)


def _asks_for_gpus(case: Case) -> bool:
    some = ("gres", "gpus", "gpus-per-node", "gpus-per-task", "gpus-per-socket")
    return case.option(*some, "tres-per-task", "qos", "constraint") is not None


def _limit(option: Option | None) -> int | None:
    try:
        return None if option is None else slurm_text.parse_time(option.value)
    except FormatError:
        return None


def _short_with_equals(case: Case) -> Iterator[Finding]:
    for option in case.options:
        if option.value.startswith("=") and not option.written.startswith("--"):
            fix = f"{option.written}{option.value[1:]} or --{option.name}"
            fix += option.value
            if option.name in _COUNTS:
                effect = f"{option.value!r} is not a number: refused"
                yield refused(option, "short-equals", effect, fix)
            elif option.name != "time":
                effect = f"{option.value!r} is read including its '='"
                yield problem(option, "short-equals", effect, fix)


def _literal(case: Case) -> Iterator[Finding]:
    for option in case.options:
        if option.name in _KEEPS_DOLLAR or not _LITERAL.search(option.value):
            continue
        if option.name in ("output", "error", "input", "chdir"):
            continue  # another rule checks paths
        effect = "no shell reads this line: '$' is not expanded"
        yield problem(option, "literal-dollar", effect)


def _last(case: Case, names: tuple[str, ...]) -> list[Option]:
    found = (case.option(name) for name in names)
    return sorted(filter(None, found), key=lambda option: option.line)


RULES: tuple[Rule, ...] = (
    _ignored,
    _continued,
    _other_dialect,
    _times,
    _sizes,
    _gpus,
    _mail,
    _signals,
    _counts,
    _nodes,
    _choices,
    _together,
    _short_with_equals,
    _literal,
)
