"""Lines of bash drawn at random, each with files of its own names to redirect.

Every command of a line runs and succeeds where all files named ``in`` exist.
"""

import random
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

NO_REDIRECTIONS = (
    *("'a > no'", '"a < no"', r"\>", "a#b", "$((1 < 2))", "$(( (1<<2) > 1 ))", "x=1"),
    *('"$(echo "b > no" ")")"', "`echo \\`echo c\\``", r"$'it\'s > no'", "{a,b}"),
    *(
        '"${none:->no}"',
        "${none:-'<no'}",
        "\"${none:-'}'}\"",
        "$(case x in x) : ;; esac)",
    ),
    *('"$( (echo a; (echo b)) )"', "${#none}", "done", "in", "2", "}", "[["),
)


_OPERATORS = """
    < 0< > > >> 2> 2>> &> &>> >| >& 1> {fd}> {fd}< <<< 2>&1 >&2 3>&1 3>&-
"""


class DrawnShell:
    """Draws one line; `files` counts the names that it has used."""

    def __init__(self, seed: int) -> None:
        self._random = random.Random(seed)
        self._count = 0

    def line(self) -> str:
        pieces = [self._any(2) for _ in range(self._random.randint(1, 3))]
        end = self._random.choice(("", " # a comment > no", ";", " &"))
        return "\n".join(pieces) + end + "\nwait\n"

    def _name(self, kind: str) -> str:
        self._count += 1
        name = f"{kind}{self._count}"
        return self._random.choice((name, name, f'"{name}"', f"'{name}'", f"./{name}"))

    def _any(self, depth: int) -> str:
        kinds: list[Callable[[int], str]] = [self._simple, self._joined, self._document]
        if depth:
            kinds += [self._group, self._loop, self._branch, self._function]
            kinds += [self._process, self._test, self._descriptor]
        return self._random.choice(kinds)(depth)

    def _redirections(self, most: int = 2) -> str:
        drawn = []
        for _ in range(self._random.randint(0, most)):
            operator = self._random.choice(_OPERATORS.split())
            if operator[-1] in "12-":
                drawn.append(operator)
                continue
            space = self._random.choice(("", " "))
            kind = "in" if operator.endswith("<") else "out"
            drawn.append(operator + space + self._name(kind))
        return "".join(f" {one}" for one in drawn)

    def _simple(self, _depth: int) -> str:
        words = ["echo", *self._random.choices(NO_REDIRECTIONS, k=2)]
        if self._random.random() < 0.2:
            words.append(f"$(cat < {self._name('in')} 2> {self._name('out')})")
        before = self._random.choice(("", "", "", "A=b ", "x=(a '> no' $(echo b)); "))
        lead = self._redirections(1).lstrip() if self._random.random() < 0.2 else ""
        return f"{before}{lead} {' '.join(words)}{self._redirections()}".strip()

    def _joined(self, depth: int) -> str:
        joint = self._random.choice((" | ", " && ", "; ", "\n", " |& ", " &&\n", " & "))
        first = self._random.choice(("", "", "! ", "time "))
        if first == "! " and "&" in joint:
            first = ""
        later = "false || " if "&&" in joint else ""
        return f"{first}{self._simple(depth)}{joint}{later}{self._simple(depth)}"

    def _group(self, depth: int) -> str:
        inner = self._any(depth - 1)
        pairs = [("{ ", "; }"), ("(", ")"), ("((", "); :)")]
        # bash itself tries (( )) as arithmetic, and fails at a quote of a document
        left, right = self._random.choice(pairs[:2] if "\nE\n" in inner else pairs)
        end = right.lstrip(";") if inner.endswith("\n") else right
        return f"{left}{inner}{end}{self._redirections()}"

    def _loop(self, depth: int) -> str:
        inner = self._any(depth - 1)
        head = self._random.choice(
            ("for x in a 'b c'; do", "for ((i=0; i<2; i++)); do", "for x in a\ndo")
        )
        if self._random.random() < 0.5:
            fed = self._random.choice((f"< {self._name('in')}", "< <(echo 'a > no')"))
            return f"while read -r a b\ndo\n{inner}\ndone {fed}{self._redirections(1)}"
        return f"{head} {inner}\ndone{self._redirections()}"

    def _branch(self, depth: int) -> str:
        inner = self._any(depth - 1)
        if self._random.random() < 0.5:
            return f"if true; then {inner}\nelse :; fi{self._redirections()}"
        pattern = self._random.choice(("x)", "(x|y)", "*)", "'x'|\"> no\")"))
        return f"case x in {pattern} {inner}\n;; b) ;; esac{self._redirections()}"

    def _function(self, depth: int) -> str:
        name = f"f{self._random.randint(0, 99)}"
        head = self._random.choice((f"{name}() ", f"function {name} ", f"{name} ()\n"))
        inner = self._any(depth - 1)
        return f"{head}{{ {inner}\n}}\n{name}{self._redirections()}"

    def _process(self, depth: int) -> str:
        inner = self._simple(depth)
        return self._random.choice(
            (
                f"cat <({inner}) <(echo a > {self._name('out')})",
                f"tee >(cat > {self._name('out')}) < {self._name('in')}",
                f"(exec > >(tee -a {self._name('word')}) 2>&1; {inner})",
                f"mapfile -t lines < <({inner})",
            )
        )

    def _test(self, depth: int) -> str:
        test = self._random.choice(
            (
                *("[[ a < b ]]", "[[ b > a && ( x == x ) ]]", "[[ ab =~ ^(a|b)+ ]]"),
                *("(( 1 < 2 ))", "[ a \\< b ]", "((1 > 0 || 2<1))", "let 'x = 2 > 1'"),
                *(f"[ b > {self._name('out')} ]", "[[ -n \"$(echo '<')\" ]]"),
            )
        )
        return f"{test} && {self._any(depth - 1)}"

    def _descriptor(self, depth: int) -> str:
        inner = self._simple(depth)
        return f"(exec 3> {self._name('out')}; {inner} 2>&3; exec 3>&- 4<&0 4<&-)"

    def _document(self, depth: int) -> str:
        mark = self._random.choice(("E", "'E'", '"E"', r"\E", "-E", "- 'E'"))
        more = self._redirections()
        text = "$((1<2)) > no ' \" ) `echo a`"
        return f"cat <<{mark}{more}\n{text}\nE\n{self._simple(depth)}"
