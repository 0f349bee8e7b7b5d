"""What the tests of ``weigh plan`` share."""

from collections.abc import Callable

Weigh = Callable[..., tuple[int, str, str]]

HUNDRED = "".join(f"python ppo.py --seed {seed}\n" for seed in range(1, 101))
