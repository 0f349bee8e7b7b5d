"""Learn to cross a windy grid by Q-learning, with a replay buffer. Only numpy.

    python agent.py --steps 100000 --alpha 0.5 --seed 1 --buffer preallocated

A buffer that is ``preallocated`` takes its memory in the first second, one that is
``growing`` takes more with each step: a short test of it says little about a long run.
"""

import argparse
import json
import time
from pathlib import Path

import numpy as np

WIDTH, HEIGHT = 10, 7
WIND = (0, 0, 0, 1, 1, 1, 2, 2, 1, 0)
START, GOAL = (0, 3), (7, 3)
MOVES = ((0, 1), (0, -1), (1, 0), (-1, 0))
OBSERVATION = 512  # numbers kept of each step, as an image would be
BATCH = 32
CAPACITY = 20_000
REPORTS = 20


class Preallocated:
    """A ring of a fixed number of steps, all of whose memory is taken at once."""

    def __init__(self, capacity: int) -> None:
        self._seen = np.zeros((capacity, OBSERVATION), dtype=np.float32)
        self._seen.fill(1.0)  # zeros take no memory until they are written
        self._steps = np.zeros((capacity, 4), dtype=np.int32)
        self._count = 0

    def add(self, step: tuple[int, int, int, int], seen: np.ndarray) -> None:
        """Keep a step in place of the oldest."""
        at = self._count % len(self._steps)
        self._steps[at] = step
        self._seen[at] = seen
        self._count += 1

    def draw(self, random: np.random.Generator) -> np.ndarray:
        """Draw steps to learn from."""
        return self._steps[
            random.integers(0, min(self._count, len(self._steps)), BATCH)
        ]


class Growing:
    """A list: a little more with every step."""

    def __init__(self) -> None:
        self._steps: list[tuple[int, int, int, int]] = []
        self._seen: list[np.ndarray] = []

    def add(self, step: tuple[int, int, int, int], seen: np.ndarray) -> None:
        """Keep a step, for good."""
        self._steps.append(step)
        self._seen.append(seen)

    def draw(self, random: np.random.Generator) -> np.ndarray:
        """Draw steps to learn from."""
        chosen = random.integers(0, len(self._steps), BATCH)
        return np.array([self._steps[at] for at in chosen])


def move(place: tuple[int, int], action: int) -> tuple[int, int]:
    """Give where an action leads, with the wind of the column."""
    x, y = place
    right, up = MOVES[action]
    return (
        min(max(x + right, 0), WIDTH - 1),
        min(max(y + up + WIND[x], 0), HEIGHT - 1),
    )


def learn(options: argparse.Namespace) -> list[int]:
    """Learn for so many steps; give the length of each episode."""
    random = np.random.default_rng(options.seed)
    values = np.zeros((WIDTH * HEIGHT, len(MOVES)))
    buffer = Preallocated(CAPACITY) if options.buffer == "preallocated" else Growing()
    place, lengths, length = START, [], 0
    every = max(1, options.steps // REPORTS)
    for step in range(1, options.steps + 1):
        state = place[0] * HEIGHT + place[1]
        explores = random.random() < options.epsilon
        action = int(random.integers(4) if explores else values[state].argmax())
        place = move(place, action)
        length += 1
        after = place[0] * HEIGHT + place[1]
        seen = random.random(OBSERVATION, dtype=np.float32)
        buffer.add((state, action, after, int(place == GOAL)), seen)
        drawn = buffer.draw(random)
        old, did, new, over = drawn.T
        target = -1 + values[new].max(axis=1) * (1 - over)
        values[old, did] += options.alpha * (target - values[old, did])
        if place == GOAL:
            place, length = START, lengths.append(length) or 0
        if step % every == 0:
            if not np.isfinite(values).all():
                raise SystemExit("diverged: take a smaller --alpha")
            print(f"step {step} of {options.steps}", flush=True)
    return lengths


def main() -> None:
    """Read the options, learn, write what came out."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=100_000)
    parser.add_argument("--alpha", type=float, default=0.5)
    parser.add_argument("--epsilon", type=float, default=0.1)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument(
        "--buffer", choices=("preallocated", "growing"), default="preallocated"
    )
    parser.add_argument("--output", type=Path)
    options = parser.parse_args()
    began = time.perf_counter()
    lengths = learn(options)
    last = float(np.mean(lengths[-20:])) if lengths else None
    result = {"episodes": len(lengths), "last_20": last}
    print(json.dumps(result), f"after {time.perf_counter() - began:.1f} s")
    if options.output:
        options.output.parent.mkdir(parents=True, exist_ok=True)
        options.output.write_text(json.dumps(vars(options) | result, default=str))


if __name__ == "__main__":
    main()
