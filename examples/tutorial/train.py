"""Train a classifier that finds the brighter pictures; the memory goes with the batch.

    python3 train.py --batch-size 100 --epochs 5 --lr 0.1 --seed 1

It needs Python's standard library only, and does not use weigh.
"""

import argparse
import math
import random
import sys
import time

PIXELS = 512 * 1024  # of a picture, one byte each
PARTS = 16
HALF = 0.5
BATCHES = 1  # in an epoch
BRIGHTER = bytes(min(255, value + 12) for value in range(256))


def picture(source: random.Random, is_bright: int) -> bytes:
    """Return a picture of noise, twelve steps brighter if *is_bright*."""
    noise = source.randbytes(PIXELS // 4)
    return (noise.translate(BRIGHTER) if is_bright else noise) * 4


def features(pixels: bytes) -> list[float]:
    """Return how bright each part of a picture is, from 64 of its pixels."""
    size = PIXELS // PARTS
    starts = range(0, PIXELS, size)
    parts = [pixels[start : start + size : size // 64] for start in starts]
    return [(sum(part) / len(part) - 133.5) / 9 for part in parts]


def chance(weights: list[float], seen: list[float]) -> float:
    """Return how probable it is that a picture is a bright one."""
    score = sum(weight * value for weight, value in zip(weights, seen, strict=True))
    return 1 / (1 + math.exp(-max(-50.0, min(50.0, score))))


def train(batch_size: int, epochs: int, lr: float, seed: int) -> float:
    """Train by gradient descent; return the accuracy on 100 other pictures."""
    source = random.Random(seed)  # noqa: S311 - no secret
    weights = [0.0] * PARTS
    accuracy = 0.0
    for epoch in range(1, epochs + 1):
        for _ in range(BATCHES):
            labels = [source.randrange(2) for _ in range(batch_size)]
            batch = [picture(source, label) for label in labels]  # all in memory
            for label, pixels in zip(labels, batch, strict=True):
                seen = features(pixels)
                step = lr * (label - chance(weights, seen)) / math.sqrt(batch_size)
                weights = [w + step * x for w, x in zip(weights, seen, strict=True)]
            del batch
        if not all(map(math.isfinite, weights)):
            sys.exit("the weights are no longer finite: take a smaller --lr")
        right = 0
        for number in range(100):
            found = chance(weights, features(picture(source, number % 2)))
            right += (found > HALF) == number % 2
        accuracy = right / 100
        print(f"epoch {epoch}/{epochs} accuracy {accuracy:.3f}", flush=True)
    return accuracy


def main() -> None:
    """Read the options, train, print how long it took."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--batch-size", type=int, default=100)
    parser.add_argument("--epochs", type=int, default=3)
    parser.add_argument("--lr", type=float, default=0.1)
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    began = time.perf_counter()
    accuracy = train(options.batch_size, options.epochs, options.lr, options.seed)
    print(f"accuracy {accuracy:.3f} after {time.perf_counter() - began:.1f} s")


if __name__ == "__main__":
    main()
