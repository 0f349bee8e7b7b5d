"""Find secrets in commands, and hide them.

Passwords, tokens and keys are recognised by the name in front of them, credentials by
their place in a URL or header. A reference such as ``$HF_TOKEN`` is not a secret and
stays. ``re`` is imported only for commands with one of the words below.
"""

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

import msgspec

from weigh.errors import FormatError
from weigh.lazy_modules import lazy_module

if TYPE_CHECKING:
    import re
    import shlex

    from weigh import bounded_pattern
else:  # each is imported when it is first used
    re = lazy_module("re")
    shlex = lazy_module("shlex")
    bounded_pattern = lazy_module("weigh.bounded_pattern")

HIDDEN = "********"  # eight: the patterns below leave eight stars alone

# how tokens of GitHub, GitLab, Hugging Face, Slack, npm, PyPI, AWS, Google... begin
_PREFIXES = (
    *("ghp_", "gho_", "ghu_", "ghs_", "ghr_", "github_pat_", "glpat-", "hf_", "xoxa-"),
    *("xoxb-", "xoxp-", "xoxr-", "xoxs-", "npm_", "pypi-", "dop_v1_", "r8_", "gsk_"),
    *("xai-", "shpat_", "lin_api_", "dapi", "AKIA", "ASIA", "AIza", "SG.", "eyJ"),
)
# a text without any of these has no secret that is recognised
SIGNS = (
    *("pass", "pwd", "secret", "token", "key", "credential", "auth", "bearer", "://"),
    *("sig=", "signature", "cookie", "login", "--pw", "_pw", "-----begin"),
    *("zip ", "7z", "openssl", "--pat"),
    *("curl", "lftp", "mysql", "mariadb", "redis-cli", "smbclient", "ldap"),
    *(f"{before}http{after}" for before in " \t\n/" for after in (" ", "s ")),
    *(prefix.lower() for prefix in _PREFIXES),
    *(f"{before}sk-" for before in "\n =:'\"\t"),  # not those of "task-"
)
# what names a secret; a prefix may stand before it, as in hf_token
_NAME = (
    r"(?:[\w.-]*[._-])?(?:password|passwd|passphrase|secret|token|credentials?|"
    r"api[_-]?key|(?:shared)?access[_-]?key|secret[_-]?key|private[_-]?key|"
    r"account[_-]?key|(?<=\w[._-])pass|(?<=wandb[._-])key|(?<=comet[._-])key)"
)
# tokens of a language model, not of an account
_HARMLESS = (
    r"(?![\w.-]*\b(?:\w*[_-])?(?:pad|eos|bos|unk|sep|cls|mask|special|start|end|stop|"
    r"image|next|per)[_-]token\b)"
)
# names of variables in capitals, which may be shorter
_VARIABLE = (
    r"(?:[A-Z0-9_]*(?:PASSWORD|PASSWD|PASSPHRASE|_PASS|_PWD|_PW|_KEY|_TOKEN|_SECRET)"
    r"|TOKEN|SECRET)"
)
# a word of a shell, with its quotes; not $NAME, and nothing masked before
_VALUE = (
    r"(?!['\"]?\$|\*{8})"
    r"(?:'[^']*'|\"(?:\\.|[^\"\\])*\"|\\.|[^\s'\"\\;|&<>()])+"
)
# scheme://user: in front of a password
_URL = r"\b[A-Za-z][\w+.-]*://[^\s/@:'\"]*:(?!\*{8}|\$)"
# in front of the credentials of an HTTP request
_HEADER = (
    r"(?i:\b(?:proxy-)?authorization:[ \t]*(?:(?:bearer|basic|token)[ \t]+)?"
    r"|\b(?:x-api-key|private-token|x-auth-token):[ \t]*|\bbearer[ \t]+)"
    r"(?!\$|\*{8}|(?i:bearer|basic|token)[ \t])"
)
_SAME = r"[^|;&\n]{0,200}?"  # between words of one command
# a secret that only its program shows: (the words before it)
_OF_PROGRAMS = (
    (
        rf"\b(?:curl|https?|xh|lftp)\b(?!:){_SAME}[ \t]"
        r"(?:-[ua]|--(?:proxy-)?user|--auth)"
        r"(?:=|[ \t]*)['\"]?[^\s:,'\"]*[:,]"
    ),
    rf"\b(?:mysql|mariadb)[\w-]*[ \t]{_SAME}(?<=[ \t])-p(?=\S)",
    rf"\bsshpass[ \t]{_SAME}-p[ \t]*",
    (
        rf"\b(?:docker|podman|apptainer|singularity|helm)[ \t]{_SAME}\blogin\b{_SAME}"
        r"[ \t]-p[ \t]*"
    ),
    rf"\bredis-cli[ \t]{_SAME}(?<=[ \t])-a[ \t]*",
    rf"\bsmbclient[ \t]{_SAME}-U[ \t]*[^\s%]+%",
    rf"\bldap\w+[ \t]{_SAME}(?<=[ \t])-w[ \t]*",
    rf"\bhtpasswd[ \t]{_SAME}(?<=[ \t])-\w*b\w*[ \t]+\S+[ \t]+\S+[ \t]+",
    (
        r"\b(?:wandb|huggingface-cli|hf|comet|neptune)[ \t]+(?:auth[ \t]+)?login\b"
        r"(?:[ \t]+--(?:host|entity)[ =]\S+"
        r"|[ \t]+(?!--(?:host|entity)\b)-[\w-]+(?:=\S+)?)*[ \t]+(?!-)"
    ),
    rf"\baz[ \t]+login\b{_SAME}[ \t]-p[ \t]+",
    rf"\b(?:un)?zip[ \t]{_SAME}(?<=[ \t])-P[ \t]+",
    rf"\b7z[ar]?[ \t]{_SAME}(?<=[ \t])-p(?=\S)",
    rf"\bopenssl[ \t]{_SAME}(?<=[ \t])-[kK][ \t]+",
    r"\blogin\((?:[^()]{0,200}\W)?key=",  # wandb.login(key=...)
    r"\bconda[ \t]+token[ \t]+(?:set|add)[ \t]+",
    r"\baws_(?:secret_access_key|session_token)[ \t]+",
    r"\bpass:",  # openssl -passin
)
Hide = Callable[[str], str]


class SecretMask(msgspec.Struct, frozen=True):
    """What to hide: all known secrets and matches of ``patterns``, unless ``off``.

    The group of a pattern is hidden or, without a group, the whole match.
    """

    patterns: tuple[str, ...] = ()
    off: bool = False

    def may_hold(self, line_text: str) -> bool:
        """Return whether *line_text* may contain a secret."""
        if self.off:
            return False
        # spaces: some signs have one before or after them
        lower = f" {line_text.lower()} "
        return bool(self.patterns) or any(sign in lower for sign in SIGNS)

    def line(self, line_text: str, hide: Hide = lambda _: HIDDEN) -> str:
        """Return a shell command line with each secret replaced by *hide*."""
        if not self.may_hold(line_text):
            return line_text

        def hidden(match: "re.Match[str]") -> str:
            group = 1 if match.re.groups else 0
            begin, end = match.span(group)
            # its group took no part, or an earlier pattern has hidden it
            if begin < 0 or HIDDEN in match[group]:
                return match[0]
            start = match.start()
            kept = match[0]
            return kept[: begin - start] + hide(match[group]) + kept[end - start :]

        for pattern in (*_secret_patterns(), *self.patterns):
            line_text = re.sub(pattern, hidden, line_text)
        return line_text

    def words(self, argv: Sequence[str]) -> tuple[str, ...]:
        """Return the words of a command with secrets hidden."""
        if not any(map(self.may_hold, argv)):
            return tuple(argv)
        # the secret is then the next word
        flag = re.compile(rf"--?{_HARMLESS}(?i:{_NAME})")
        setting = re.compile(
            rf"((?:--?)?{_HARMLESS}(?:(?i:{_NAME})|{_VARIABLE})=)(?!\$)(.*)", re.DOTALL
        )
        said, is_value = [], False
        for word in argv:
            found = setting.fullmatch(word)
            if is_value and not word.startswith("-"):
                said.append(HIDDEN)
            elif found:
                said.append(found[1] + HIDDEN)
            else:
                said.append(self.line(word))
            is_value = flag.fullmatch(word) is not None
        return self._hidden_by_programs(said)

    def _hidden_by_programs(self, command_words: list[str]) -> tuple[str, ...]:
        """Return *command_words* without secrets that only a program's options show."""
        # patterns with several words need the line; its words must come out the same
        line = shlex.join(command_words)
        masked = self.line(line)
        if masked == line:
            return tuple(command_words)
        try:
            found = shlex.split(masked)
        except ValueError:  # a quote of the value was hidden with it
            found = []
        return tuple(found if len(found) == len(command_words) else command_words)

    def value(self, parameter_name: str, value: float | str) -> float | str:
        """Return the value of a parameter, hidden if its name is that of a secret."""
        # any value will do: the name decides
        masked = self.line(f"{parameter_name}=x")
        return HIDDEN if masked != f"{parameter_name}=x" else value


MASK = SecretMask()


def parse_mask(where: str, mask_value: object) -> SecretMask:
    """Read ``[records] mask``: false, true, or a list of regular expressions.

    Raises:
        FormatError: *mask_value* is none of these.
    """
    if isinstance(mask_value, bool):
        return SecretMask(off=not mask_value)
    if isinstance(mask_value, list) and all(isinstance(one, str) for one in mask_value):
        for one in mask_value:
            try:
                bounded_pattern.compile_bounded(one)
            except re.error as error:
                raise FormatError(f"{where}: {one!r}: {error}") from error
        return SecretMask(tuple(mask_value))
    raise FormatError(
        f"{where} must be false or a list of patterns, not {mask_value!r}"
    )


def _secret_patterns() -> tuple[str, ...]:
    # not within a longer word
    before = r"(?<![\w.-])"
    prefixes = "|".join(prefix.replace(".", r"\.") for prefix in _PREFIXES)
    return (
        rf"{before}--?{_HARMLESS}(?i:{_NAME})(?:=|[ \t]+(?!-))({_VALUE})",
        # up to three digits count something: --pass 2
        (
            rf"{before}--?(?:pass|pwd|pw|pat)(?:=|[ \t]+(?!-))"
            rf"(?!\d{{1,3}}(?!\w))({_VALUE})"
        ),
        # a key of a table is short, or has no digit
        rf"{before}--(?:key|auth)(?:=|[ \t]+)(?=[\w-]*\d)([\w-]{{12,}})(?![\w./])",
        rf"{before}{_HARMLESS}(?:(?i:{_NAME})|{_VARIABLE})=({_VALUE})",
        rf"{_URL}([^\s/@'\"]+)@",
        # a token as the user of a URL: long, and with a digit
        r"\bhttps?://(?=[^\s/@]*\d)(?!\*{8}|\$)([\w.~%-]{12,})@",
        (
            r"[?&](?i:sig|signature|key|auth|code|x-\w+-(?:signature|credential))="
            r"(?!\$|\*{8})([^\s&'\"#]+)"
        ),
        rf"\\?['\"]{_HARMLESS}(?i:{_NAME})\\?['\"][ \t]*:[ \t]*({_VALUE})",
        rf"\b(?i:password|passwd|passphrase|api[_-]?key|secret):[ \t]+({_VALUE})",
        rf"{_HEADER}([^\s'\"]+)",
        r"\b(?i:cookie):[ \t]*(?!\$|\*{8})([^'\"\n]+)",
        rf"\becho[ \t]+(?:-n[ \t]+)?({_VALUE})[ \t]*\|[^|;&\n]*--password-stdin",
        r"(-----BEGIN [A-Z ]*PRIVATE KEY-----[^'\"]*)",
        # random letters have capitals or digits; names such as hf_datasets have none
        rf"(?<![\w-])((?:{prefixes})(?=[\w.-]*[A-Z0-9])[A-Za-z0-9_.-]{{16,}})",
        r"(?<![\w-])(sk-(?=[\w-]*\d)[\w-]{16,})",
        *(rf"{words}({_VALUE})" for words in _OF_PROGRAMS),
    )
