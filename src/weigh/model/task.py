"""One task: a line of a task file, with the parameters that it was made of."""

import msgspec


class Task(msgspec.Struct, frozen=True):
    """One command line of a task file.

    ``seq`` counts the tasks from 1, as GNU parallel's joblog does; ``line`` is a
    line for a shell, without its newline; ``parameters`` is empty where no sweep
    wrote it.
    """

    seq: int
    line: str
    parameters: dict[str, int | float | str] = {}
