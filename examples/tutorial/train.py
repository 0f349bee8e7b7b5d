"""Train a classifier that separates two spirals; the memory goes with the batch.

    python train.py --batch-size 100 --epochs 5 --lr 0.1 --seed 1

Nothing in it knows of weigh. It needs numpy, which comes with weigh.
"""

import argparse
import sys
import time

import numpy as np

FEATURES = 8192
BATCHES = 4  # in an epoch


def spirals(random: np.random.Generator, count: int) -> tuple[np.ndarray, np.ndarray]:
    """Give *count* points of two spirals, and which one each is of (0 or 1)."""
    which = random.integers(0, 2, count)
    turn = random.uniform(0.25, 2.0, count) * 2 * np.pi
    angle = turn + np.pi * which
    points = np.stack([np.cos(angle), np.sin(angle)], axis=1) * turn[:, None] / np.pi
    return points + random.normal(0, 0.3, points.shape), which


def train(batch_size: int, epochs: int, lr: float, seed: int) -> float:
    """Train by gradient descent on random Fourier features; give the accuracy."""
    random = np.random.default_rng(seed)
    directions = random.normal(0, 2.0, (2, FEATURES))
    shifts = random.uniform(0, 2 * np.pi, FEATURES)
    weights = np.zeros(FEATURES)

    def features(points: np.ndarray) -> np.ndarray:
        return np.cos(points @ directions + shifts) * np.sqrt(2 / FEATURES)

    for epoch in range(1, epochs + 1):
        for _ in range(BATCHES):
            points, which = spirals(random, batch_size)
            seen = features(points)
            chance = 1 / (1 + np.exp(-seen @ weights))
            weights -= lr * 10 * seen.T @ (chance - which) / batch_size
        if not np.isfinite(weights).all():
            sys.exit("the weights are no longer finite: take a smaller --lr")
        points, which = spirals(random, 500)
        right = ((features(points) @ weights > 0) == which).mean()
        print(f"epoch {epoch}/{epochs} accuracy {right:.3f}", flush=True)
    return float(right)


def main() -> None:
    """Read the options, train, say how long it took."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--batch-size", type=int, default=100)
    parser.add_argument("--epochs", type=int, default=3)
    parser.add_argument("--lr", type=float, default=0.1)
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    began = time.perf_counter()
    right = train(options.batch_size, options.epochs, options.lr, options.seed)
    print(f"accuracy {right:.3f} after {time.perf_counter() - began:.1f} s")


if __name__ == "__main__":
    main()
