"""``--halt``: when to stop before all tasks have run, as in GNU parallel."""

from typing import Literal

import msgspec

from weigh.errors import UsageError

When = Literal["never", "soon", "now"]
_WHYS = ("fail", "success", "done")
_ALL = 100  # percent
# numbers that GNU parallel took before it had words
_OLD = {
    "0": "never",
    "1": "soon,fail=1",
    "2": "now,fail=1",
    "-1": "soon,success=1",
    "-2": "now,success=1",
}


class HaltRule(msgspec.Struct, frozen=True):
    """Stop ``now`` (running tasks too) or ``soon`` (start no more), and why.

    ``share`` is of all tasks; where it is None, ``count`` tasks are enough.
    """

    when: When = "never"
    why: str = "fail"
    count: int = 1
    share: float | None = None

    def is_due(self, *, failed: int, succeeded: int, tasks: int) -> bool:
        """Return whether enough tasks have failed, succeeded or ended."""
        if self.when == "never":
            return False
        ended = {"fail": failed, "success": succeeded}.get(self.why, failed + succeeded)
        if self.share is None:
            return ended >= self.count
        # before anything ended, 0 of 0 tasks would be enough
        return ended > 0 and ended >= self.share * tasks


def parse_halt(option_text: str) -> HaltRule:
    """Read ``never``, ``now,fail=1``, ``soon,done=50%``, or the old 0, 1, 2, 10%.

    Raises:
        UsageError: *option_text* is none of these.
    """
    words = _OLD.get(option_text, option_text)
    if words == "never":
        return HaltRule()
    if words.endswith("%") and words[:-1].isdecimal():
        words = f"soon,fail={words}"
    when, comma, rest = words.partition(",")
    why, equals, number = rest.partition("=")
    digits = number.removesuffix("%")
    if (
        when not in {"now", "soon"}
        or why not in _WHYS
        or not (comma and equals and digits.isdecimal() and len(digits) < 10)  # noqa: PLR2004
        or int(digits) == 0
        or (number.endswith("%") and int(digits) > _ALL)
    ):
        raise UsageError(
            f"invalid --halt {option_text}: write now,fail=1 or soon,fail=10% "
            "(or success, done)"
        )
    chosen: When = "now" if when == "now" else "soon"
    if number.endswith("%"):
        return HaltRule(chosen, why, share=int(digits) / 100)
    return HaltRule(chosen, why, count=int(digits))
