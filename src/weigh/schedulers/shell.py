"""A shell script cut into commands with their redirections, by bash's own grammar.

What this reader cannot place it does not guess: such a script has no commands, and no
rule says anything of it. tests/laws compares it with bash on drawn lines.
"""

import bisect
import re
from collections.abc import Iterator
from typing import Literal, NoReturn

import msgspec

# the longest first: << must not be read as two <
_OPERATORS = (
    *("<<<", "<<-", "&>>", ";;&"),
    *("&&", "||", ";;", ";&", "|&", "<<", "<&", ">&", "&>", ">>", "<>", ">|"),
    *("<", ">", "|", "&", ";", "(", ")"),
)
PIPES = frozenset({"|", "|&"})
_JOINS = PIPES | {"&", "&&", "||"}
_INTO = frozenset({">", ">>", "&>", "&>>", ">|", ">&"})
_FROM = frozenset({"<", "<>"})
_REDIRECTS = _INTO | _FROM | {"<<", "<<-", "<<<", "<&"}
_ENDS_WORD = frozenset(" \t\r\n;&|<>()")
# 2> or {name}>, but not 2 followed by a process substitution
_DESCRIPTOR = re.compile(r"(?:\d+|\{[A-Za-z_]\w*\})(?=[<>])(?![<>]\()")
_BLANK = re.compile(r"[ \t\r]+|\\\n|#[^\n]*")
# behind <& and >&: a descriptor, a minus that closes one, or what only the shell knows
_NO_FILE = re.compile(r"\d*-?|[$`].*", re.DOTALL)
# name=( or name+=(: an array's words follow, not a subshell
_BEFORE_LIST = re.compile(r"[A-Za-z_]\w*(?:\[[^\]]*\])?\+?=")
_ASSIGNMENT = re.compile(r"[A-Za-z_][A-Za-z0-9_]*(\[[^]]*\])?\+?=")
_EXTENDED_PATTERNS = frozenset("?*+@!")
_OPENERS = frozenset(
    {"if", "while", "until", "for", "select", "case", "{", "[[", "function"}
)
_CLOSERS = frozenset({"then", "elif", "else", "fi", "do", "done", "esac", "}"})
# substitutions within each other: garbled text must not exhaust Python's stack
_MOST_NESTED = 60


class ShellToken(msgspec.Struct, frozen=True):
    """A word, an operator, the end of a line or the text of a here-document."""

    kind: Literal["word", "operator", "newline", "document"]
    text: str
    line: int


class ShellCommand(msgspec.Struct, frozen=True, kw_only=True):
    """A simple command: its words without quotes, its redirections.

    Variables are not expanded. ``after`` is the operator that ends it, or the group of
    which it is the last: ``;``, ``|``, ``&&``... ``is_tested``: an ``if``, a loop or
    ``!`` decides by its exit code. ``appended`` are those of the outputs that are not
    overwritten. The redirections of a loop or a group are a command without words.
    ``has_own_input`` is whether its standard input is redirected. ``blocks`` are the
    numbers of the branches, loops and functions around it, negative for subshells.
    ``is_substituted``: it stands in ``$( )``, ``<( )`` or ``>( )``; such commands
    follow the one that they are an argument of.
    """

    line: int
    text: str
    words: tuple[str, ...] = ()
    assigned: tuple[str, ...] = ()
    inputs: tuple[str, ...] = ()
    outputs: tuple[str, ...] = ()
    appended: tuple[str, ...] = ()
    has_own_input: bool = False
    after: str = ""
    is_tested: bool = False
    is_substituted: bool = False
    blocks: tuple[int, ...] = ()

    @property
    def name(self) -> str:
        """Return the command's name, empty for an assignment."""
        return self.words[0] if self.words else ""

    @property
    def background(self) -> bool:
        """Return whether the shell does not wait for it."""
        return self.after == "&"

    @property
    def piped(self) -> bool:
        """Return whether its output is piped to another command."""
        return self.after in PIPES


class ShellBody(msgspec.Struct, frozen=True, kw_only=True):
    """The commands that a shell would run.

    ``documents`` are the lines of here-documents, and those within quotes or ``$( )``.
    ``branches`` are the numbers of the blocks that may not run.
    """

    commands: tuple[ShellCommand, ...] = ()
    functions: frozenset[str] = frozenset()
    documents: frozenset[int] = frozenset()
    branches: frozenset[int] = frozenset()
    tokens: tuple[ShellToken, ...] = ()

    @property
    def steps(self) -> list[ShellCommand]:
        """Return the commands that the script itself runs, one after the other."""
        return [one for one in self.commands if not one.is_substituted]

    def named(self, *names: str) -> Iterator[ShellCommand]:
        """Yield the commands with one of these names."""
        return (one for one in self.commands if one.name in names)


def tokens(text: str) -> Iterator[ShellToken]:
    """Yield the tokens of *text*, without comments and line continuations."""
    reader = _ShellReader(text)
    try:
        while reader.peek() is not None:
            reader.take()
    except (_UnsureOfShellError, RecursionError):
        # what was read up to there is still of use
        pass
    yield from reader.tokens


def read_body(text: str) -> ShellBody:
    """Read the commands of a shell script; none where its grammar is not clear."""
    reader = _ShellReader(text)
    try:
        reader.read_list(frozenset())
    except (_UnsureOfShellError, RecursionError):
        # rules that look for a word anywhere must still find it
        rows = enumerate(text.split("\n"), 1)
        return ShellBody(
            tokens=tuple(ShellToken("word", row, line) for line, row in rows if row)
        )
    return ShellBody(
        commands=tuple(reader.commands),
        functions=frozenset(reader.functions),
        documents=frozenset(_document_lines(reader.tokens)),
        branches=frozenset(reader.branches),
        tokens=tuple(reader.tokens),
    )


def unquoted(word: str) -> str:
    """Return a word without its quotes; variables stay."""
    return word.replace("'", "").replace('"', "")


def _document_lines(shell_tokens: list[ShellToken]) -> Iterator[int]:
    for token in shell_tokens:
        if token.kind == "document":
            # the last line of a script may lack its line break
            rows = token.text.count("\n") + (not token.text.endswith("\n"))
            yield from range(token.line, token.line + rows)
        elif token.kind == "word":
            # the lines of quoted text, without the one that it begins on
            yield from range(token.line + 1, token.line + token.text.count("\n") + 1)


class _UnsureOfShellError(Exception):
    """The text is no shell that this reader understands."""


def _unsure() -> NoReturn:
    raise _UnsureOfShellError


class _ShellScanner:
    """Finds where the tokens of a text end; a substitution is read as commands."""

    def __init__(self, text: str, place: int = 0) -> None:
        self.text, self.place, self.depth = text, place, 0
        self.line_starts = [0, *(found.end() for found in re.finditer("\n", text))]
        self.blocks: list[int] = []
        self.branches: set[int] = set()
        self.block_count = self.tests = 0  # tests: of how many it is the condition
        self.substituted: list[ShellCommand] = []
        # without extglob, !( is a negated subshell; with it, a pattern
        self._negates = "extglob" not in text

    def next_end(
        self, place: int
    ) -> tuple[int, Literal["word", "operator", "newline"] | None]:
        """Return where the next piece ends and its kind; None for space, comments."""
        text = self.text
        if text[place] == "\n":
            return place + 1, "newline"
        if blank := _BLANK.match(text, place):
            return blank.end(), None
        # before all operators, since it may be arithmetic with < and & in it
        if text.startswith("((", place):
            return self._arithmetic_end(place) or place + 1, "operator"
        end = 0
        if not text.startswith(("<(", ">("), place):
            descriptor = _DESCRIPTOR.match(text, place)
            end = self._operator_end(descriptor.end() if descriptor else place)
        return (end, "operator") if end else (self.word_end(place), "word")

    def _operator_end(self, place: int) -> int:
        """Return where the operator at *place* ends, zero if there is none."""
        for operator in _OPERATORS:
            if self.text.startswith(operator, place):
                return place + len(operator)
        return 0

    def _arithmetic_end(self, place: int) -> int:
        """Return where ``(( ))`` at *place* ends; 0 if these are two subshells."""
        depth, substituted = 0, len(self.substituted)
        while place < len(self.text):
            character = self.text[place]
            if character in "\\\"'`$":
                place = self._step(place)
                continue
            place += 1
            depth += (character == "(") - (character == ")")
            # the inner bracket has closed: the outer one must follow at once
            if depth == 1 and character == ")":
                if self.text.startswith(")", place):
                    return place + 1
                break
        # all is read again, as commands
        del self.substituted[substituted:]
        return 0

    def word_end(self, place: int) -> int:
        """Return where the word at *place* ends."""
        text, start = self.text, place
        while place < len(text):
            character = text[place]
            opens = text.startswith("(", place + 1)
            # a bracket that does not end the word: a list, a substitution, a pattern
            if character == "(" and _BEFORE_LIST.fullmatch(text, start, place):
                place = self._list_end(place + 1)
            elif character in "<>" and opens:
                place = self._commands_end(place + 2)
            elif character == "!" and opens and place == start and self._negates:
                return place + 1
            elif character in _EXTENDED_PATTERNS and opens:
                place = self._bracket_end(place + 1, "(", ")")
            elif character in _ENDS_WORD:
                break
            else:
                place = self._step(place)
        return place

    def _step(self, place: int, *, is_quoted: bool = False) -> int:
        """Return the end of one character, or of the quotes or `$` that begin there."""
        text, character = self.text, self.text[place]
        if character == "\\":
            return min(place + 2, len(text))
        # within double quotes a single quote is a plain character
        if character == "'" and not is_quoted:
            return self._after(text.find("'", place + 1))
        if character == "`":
            return self._until("`", place + 1)
        if character == '"' and not is_quoted:
            return self._double_quotes_end(place)
        if character == "$":
            return self._dollar_end(place, is_quoted=is_quoted)
        return place + 1

    def _after(self, found: int) -> int:
        return _unsure() if found < 0 else found + 1

    def _until(self, mark: str, place: int) -> int:
        """Return the place behind the next *mark* that no backslash precedes."""
        while place < len(self.text) and self.text[place] != mark:
            place += 2 if self.text[place] == "\\" else 1
        return place + 1 if place < len(self.text) else _unsure()

    def _double_quotes_end(self, place: int) -> int:
        place += 1
        while place < len(self.text) and self.text[place] != '"':
            place = self._step(place, is_quoted=True)
        return place + 1 if place < len(self.text) else _unsure()

    def _dollar_end(self, place: int, *, is_quoted: bool) -> int:
        text = self.text
        following = text[place + 1 : place + 2]
        if following == "(":
            is_sum = text.startswith("((", place + 1)
            # $(( may also be a command substitution that begins with a subshell
            end = self._arithmetic_end(place + 1) if is_sum else 0
            return end or self._commands_end(place + 2)
        if following == "{":
            return self._bracket_end(place + 1, "{", "}")
        if following == "[":
            return self._bracket_end(place + 1, "[", "]")
        # $'...' has escapes, so that \' does not end it
        if following == "'" and not is_quoted:
            return self._until("'", place + 2)
        return place + 1

    def _bracket_end(self, place: int, opening: str, closing: str) -> int:
        """Return the end of a pair of brackets; *place* is the opening one."""
        depth = 0
        while place < len(self.text):
            character = self.text[place]
            if character == '"':
                place = self._double_quotes_end(place)
                continue
            if character in "'\\`$":
                place = self._step(place)
                continue
            # a brace is nested only behind a dollar
            depth += (character == opening) and (opening != "{" or not depth)
            depth -= character == closing
            place += 1
            if not depth:
                return place
        return _unsure()

    def _list_end(self, place: int) -> int:
        """Return the end of the words of ``name=( )``."""
        while place < len(self.text):
            place, kind = self.next_end(place)
            if kind == "operator":
                return place if self.text[place - 1] == ")" else _unsure()
        return _unsure()

    def _commands_end(self, place: int) -> int:
        """Return the end of ``$( )``, ``<( )`` or ``>( )``, read as commands."""
        # a reader of the same text: places and lines need no translation
        reader = _ShellReader(self.text, place, self)
        reader.read_list(frozenset({")"}))
        # numbers of blocks are not used twice
        self.block_count = reader.block_count
        self.substituted.extend(reader.commands)
        return reader.place


class _CommandRedirections:
    """The files that a command reads and writes."""

    def __init__(self) -> None:
        self.inputs: list[str] = []
        self.outputs: list[str] = []
        self.appended: list[str] = []
        self.has_own_input = False

    def add(self, operator: str, word: str) -> None:
        """Add one redirection; a descriptor or a substitution is no file."""
        descriptor = operator.rstrip("<>&|-")
        # 2>> is the operator >> of descriptor 2
        operator = operator.removeprefix(descriptor)
        if operator.startswith("<") and descriptor in {"", "0"}:
            self.has_own_input = True
        path = unquoted(word)
        if word.startswith(("<(", ">(")) or (
            operator in ("<&", ">&") and _NO_FILE.fullmatch(path)
        ):
            return
        if operator in _FROM:
            self.inputs.append(path)
        elif operator in _INTO:
            self.outputs.append(path)
            if operator in (">>", "&>>"):
                self.appended.append(path)


class _ShellReader(_ShellScanner):
    """Reads commands by the grammar of bash, from *place* on."""

    def __init__(
        self, text: str, place: int = 0, outer: _ShellScanner | None = None
    ) -> None:
        if outer is None:
            super().__init__(text)
        else:
            # shares the text and its line starts, which would take long to find again
            self.__dict__.update(outer.__dict__)
            self.place, self.depth, self.substituted = place, outer.depth + 1, []
            self.block_count += 1
            # a substitution runs in a subshell, next to the script's own commands
            self.blocks = [*outer.blocks, -self.block_count]
            self.branches.add(self.block_count)
        if self.depth > _MOST_NESTED:
            _unsure()
        self.tokens: list[ShellToken] = []
        self.commands: list[ShellCommand] = []
        self.functions: set[str] = set()
        self._ahead: ShellToken | None = None
        self._ahead_end = place
        # here-documents whose lines follow behind the end of this line
        self._documents: list[tuple[str, bool]] = []

    def peek(self) -> ShellToken | None:
        """Return the next token without taking it; None at the end."""
        place = self.place
        while self._ahead is None and place < len(self.text):
            end, kind = self.next_end(place)
            if kind:
                line = bisect.bisect(self.line_starts, place)
                self._ahead = ShellToken(kind, self.text[place:end], line)
                self._ahead_end = end
            place = end
        return self._ahead

    def take(self) -> ShellToken:
        """Take the next token; a here-document behind a line is read with its end."""
        token = self.peek()
        if token is None:
            _unsure()
        self._ahead, self.place = None, self._ahead_end
        self.tokens.append(token)
        if token.kind == "newline":
            self._take_documents()
        return token

    def _take_documents(self) -> None:
        for delimiter, is_indented in self._documents:
            end = _document_end(self.text, self.place, delimiter, indented=is_indented)
            line = bisect.bisect(self.line_starts, self.place)
            self.tokens.append(
                ShellToken("document", self.text[self.place : end], line)
            )
            self.place = end
        self._documents = []

    def _is_next(self, *texts: str) -> bool:
        token = self.peek()
        return token is not None and token.text in texts

    def _skip_newlines(self) -> None:
        while (token := self.peek()) and token.kind == "newline":
            self.take()

    def read_list(self, ends: frozenset[str]) -> str:
        """Read commands until one of *ends*, and return which it was."""
        while (token := self.peek()) is not None:
            # only here, where a command may begin: elsewhere `done` is a plain word
            if token.text in ends:
                return self.take().text
            if token.kind == "newline" or token.text in (";", "&", "&&", "|", "|&"):
                self.take()
            # what follows may not run, as in a branch
            elif token.text == "||":
                self.take()
                self._skip_newlines()
                self._read_block(is_branch=True)
            # a `done` without its `do`: the text is not understood
            elif token.text in _CLOSERS:
                _unsure()
            else:
                self._read_command()
        return _unsure() if ends else ""

    def _read_block(
        self, *ends: str, is_subshell: bool = False, is_branch: bool = False
    ) -> str:
        """Read the commands of a branch, a loop, a function or a subshell."""
        self.block_count += 1
        if is_branch:
            self.branches.add(self.block_count)
        self.blocks.append(-self.block_count if is_subshell else self.block_count)
        end = self.read_list(frozenset(ends)) if ends else ""
        if not ends:
            self._read_command()
        self.blocks.pop()
        return end

    def _read_command(self) -> None:
        token = self.peek()
        if token is None:
            _unsure()
        is_negated = False
        while token is not None and token.text in ("!", "time", "coproc"):
            is_negated |= self.take().text == "!"
            if token.text == "time" and self._is_next("-p"):
                self.take()
            token = self.peek()
        # `time` and `!` may stand alone
        if token is None or token.kind == "newline" or token.text in (";", "&"):
            return
        self.tests += is_negated
        if token.kind == "word" and token.text not in _OPENERS:
            self._read_simple()
        elif token.text.startswith("((") or token.text == "(" or token.kind == "word":
            self._read_compound()
        elif token.kind == "operator" and _is_redirection(token.text):
            self._read_simple()
        else:
            _unsure()
        self.tests -= is_negated
        # behind the command that they belong to
        self.commands.extend(self.substituted)
        self.substituted.clear()

    def _read_compound(self) -> None:
        token, first = self.take(), len(self.commands)
        self._read_inside(token)
        files = _CommandRedirections()
        while (following := self.peek()) and _is_redirection(following.text):
            self._read_redirection(files)
        # what joins the group joins the last of its commands
        if (following := self.peek()) and following.text in _JOINS:
            inside = range(len(self.commands) - 1, first - 1, -1)
            places = (one for one in inside if self.commands[one].words)
            for place in (*places,)[:1]:
                self.commands[place] = msgspec.structs.replace(
                    self.commands[place], after=following.text
                )
        # redirections of a whole loop: a command without words carries them
        if files.inputs or files.outputs:
            self._add(token, "", [], files)

    def _read_condition(self, end: str) -> None:
        self.tests += 1
        self.read_list(frozenset({end}))
        self.tests -= 1

    def _read_inside(self, token: ShellToken) -> None:
        if token.text == "(":
            self._read_block(")", is_subshell=True)
        elif token.text == "{":
            self.read_list(frozenset({"}"}))
        elif token.text == "if":
            self._read_if()
        elif token.text in ("while", "until"):
            self._read_condition("do")
            self._read_block("done")
        elif token.text in ("for", "select"):
            self._read_for()
        elif token.text == "case":
            self._read_case()
        elif token.text == "[[":
            self._read_test(token)
        elif token.text == "function":
            self.functions.add(self.take().text)
            if self._is_next("("):
                self.take()
                self.take()
            self._skip_newlines()
            self._read_block(is_branch=True)

    def _read_if(self) -> None:
        self._read_condition("then")
        while (end := self._read_block("elif", "else", "fi", is_branch=True)) != "fi":
            if end == "elif":
                self._read_condition("then")

    def _read_for(self) -> None:
        self.take()  # the variable, or (( ))
        self._skip_newlines()
        if self._is_next("in"):
            self.take()
            while (token := self.peek()) and token.kind == "word":
                self.take()
        while (token := self.peek()) and token.text in (";", "\n"):
            self.take()
        opener = self.take().text
        if opener not in ("do", "{"):
            _unsure()
        self._read_block("done" if opener == "do" else "}")

    def _read_case(self) -> None:
        self.take()
        self._skip_newlines()
        if self.take().text != "in":
            _unsure()
        end = ""
        while end != "esac":
            self._skip_newlines()
            if self._is_next("esac"):
                self.take()
                return
            # the patterns of a branch, up to its bracket
            while self.take().text != ")":
                if (token := self.peek()) and token.kind == "newline":
                    _unsure()
            end = self._read_block(";;", ";&", ";;&", "esac", is_branch=True)

    def _read_test(self, first: ShellToken) -> None:
        words = [first]
        while words[-1].text != "]]":
            if (token := self.take()).kind != "newline":
                words.append(token)
        self._add(first, "", words, _CommandRedirections())

    def _read_simple(self) -> None:
        words: list[ShellToken] = []
        files = _CommandRedirections()
        first = self.peek()
        while (token := self.peek()) is not None:
            if _is_redirection(token.text) and token.kind == "operator":
                self._read_redirection(files)
            elif token.kind == "word":
                words.append(self.take())
            # one word and a bracket: name () { ... }
            elif token.text == "(" and len(words) == 1 and not files.outputs:
                self.take()
                if self.take().text != ")":
                    _unsure()
                self.functions.add(words[0].text)
                self._skip_newlines()
                self._read_block(is_branch=True)
                return
            else:
                break
        # a bracket behind words is no shell
        if token is not None and token.text.startswith("("):
            _unsure()
        if first is not None:
            ending = "" if token is None else token.text
            self._add(first, ending, words, files)

    def _read_redirection(self, files: _CommandRedirections) -> None:
        operator = self.take().text
        target = self.peek()
        if target is None or target.kind != "word":
            return  # a template's <file>: bash refuses the line
        if operator.lstrip("0123456789") in ("<<", "<<-"):
            # <<'EOF' and <<\EOF end at EOF as well
            plain = unquoted(target.text).replace("\\", "")
            self._documents.append((plain, operator.endswith("-")))
        self.take()
        files.add(operator, target.text)

    def _add(
        self,
        first: ShellToken,
        ending: str,
        words: list[ShellToken],
        files: _CommandRedirections,
    ) -> None:
        count = 0
        # assignments in front of a command; behind it they are arguments
        while count < len(words) and _ASSIGNMENT.match(words[count].text):
            count += 1
        self.commands.append(
            ShellCommand(
                line=(words[0] if words else first).line,
                text=" ".join(word.text for word in words),
                words=tuple(unquoted(word.text) for word in words[count:]),
                assigned=tuple(word.text for word in words[:count]),
                inputs=tuple(files.inputs),
                outputs=tuple(files.outputs),
                appended=tuple(files.appended),
                has_own_input=files.has_own_input,
                after=ending,
                is_tested=self.tests > 0,
                is_substituted=self.depth > 0,
                blocks=tuple(self.blocks),
            )
        )


def _is_redirection(operator: str) -> bool:
    descriptor = _DESCRIPTOR.match(operator)
    return operator[descriptor.end() if descriptor else 0 :] in _REDIRECTS


def _document_end(text: str, place: int, delimiter: str, *, indented: bool) -> int:
    while place < len(text):
        end = text.find("\n", place)
        end = len(text) if end < 0 else end + 1
        # a Windows line ending is no part of the delimiter
        row = text[place:end].rstrip("\r\n")
        place = end
        if (row.lstrip("\t") if indented else row) == delimiter:
            break
    return place
