"""Train a small transformer to put the punctuation back into a text.

    python punctuate.py ../ner/alice.txt 32

Each word is followed by nothing, by a comma, or by the end of a sentence; the network
learns which. It runs on a CPU, and on a GPU where torch finds one: the report is the
same, with the GPU's memory in it or without.
"""

import argparse
import sys
from collections import Counter
from collections.abc import Iterator

import torch
from torch import nn

import weigh

LENGTH = 64  # words in a row
WORDS = 4000
MARKS = {",": 1, ";": 1, ":": 1, ".": 2, "!": 2, "?": 2}
CLASSES = 3

Batch = tuple[torch.Tensor, torch.Tensor]


def main() -> int:
    """Read the command line, train, say how good it has become."""
    parser = argparse.ArgumentParser(description="Learn to punctuate a text.")
    parser.add_argument("text", help="plain text, UTF-8")
    parser.add_argument("batch_size", type=whole, help="rows of 64 words at a time")
    parser.add_argument("--epochs", type=whole, default=6)
    options = parser.parse_args()
    torch.manual_seed(1)
    device = "cuda" if torch.cuda.is_available() else "cpu"
    try:
        with weigh.phase("read"):
            words, marks = read(options.text)
    except (OSError, UnicodeDecodeError) as error:
        print(f"punctuate.py: {options.text}: {error}", file=sys.stderr)
        return 1
    if len(words) < LENGTH:
        print(f"punctuate.py: {options.text}: too short a text", file=sys.stderr)
        return 1
    with weigh.phase("load model"):
        model = Punctuator().to(device)
        optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    right = 0.0
    with weigh.phase("train"):
        for epoch in range(options.epochs):
            rows = batches(words, marks, options.batch_size)
            expected = -(-(len(words) // LENGTH) // options.batch_size)
            for inputs, labels in weigh.batches(rows, options.batch_size, expected):
                step(model, optimizer, inputs.to(device), labels.to(device))
            right = score(model, words, marks, device)
            weigh.event("right", right)
            print(f"epoch {epoch + 1}: {right:.1%} of the words right")
    return 0


def read(path: str) -> tuple[torch.Tensor, torch.Tensor]:
    """Read a text as word numbers, and what follows each word."""
    with open(path, encoding="utf-8") as file:
        found = file.read().replace("\x1a", "").lower().split()
    marks = [MARKS.get(word.rstrip("'\")")[-1:], 0) for word in found]
    plain = [word.strip(".,;:!?'\"()*-`_") for word in found]
    usual = [word for word, _ in Counter(plain).most_common(WORDS - 1)]
    numbers = {word: number for number, word in enumerate(usual, start=1)}
    return torch.tensor([numbers.get(w, 0) for w in plain]), torch.tensor(marks)


def batches(words: torch.Tensor, marks: torch.Tensor, size: int) -> Iterator[Batch]:
    """Cut a text into rows, and rows into batches."""
    rows = len(words) // LENGTH
    inputs = words[: rows * LENGTH].view(rows, LENGTH)
    labels = marks[: rows * LENGTH].view(rows, LENGTH)
    for first in range(0, rows, size):
        yield inputs[first : first + size], labels[first : first + size]


class Punctuator(nn.Module):
    """Words in, for each of them a class of marks out."""

    def __init__(self, width: int = 128) -> None:
        super().__init__()
        self.words = nn.Embedding(WORDS, width)
        self.places = nn.Parameter(torch.zeros(LENGTH, width))
        layer = nn.TransformerEncoderLayer(width, 4, 4 * width, batch_first=True)
        self.layers = nn.TransformerEncoder(layer, 2)
        self.classes = nn.Linear(width, CLASSES)

    def forward(self, words: torch.Tensor) -> torch.Tensor:
        """Give the scores of each class for each word."""
        scores: torch.Tensor = self.classes(
            self.layers(self.words(words) + self.places)
        )
        return scores


def step(
    model: nn.Module,
    optimizer: torch.optim.Optimizer,
    inputs: torch.Tensor,
    labels: torch.Tensor,
) -> None:
    """Learn from one batch."""
    optimizer.zero_grad()
    scores = model(inputs)
    nn.functional.cross_entropy(scores.flatten(0, 1), labels.flatten()).backward()
    optimizer.step()


@weigh.measured(name="evaluate", show_gpus=True)
def score(
    model: nn.Module, words: torch.Tensor, marks: torch.Tensor, device: str
) -> float:
    """Give the share of words whose mark is found."""
    model.eval()
    right = seen = 0
    with torch.no_grad():
        for inputs, labels in batches(words, marks, 64):
            best = model(inputs.to(device)).argmax(2).cpu()
            right += int((best == labels).sum())
            seen += labels.numel()
    model.train()
    return right / seen


def whole(text: str) -> int:
    """Read a positive whole number."""
    if not text.isdecimal() or int(text) == 0:
        raise argparse.ArgumentTypeError(f"not a positive number: {text!r}")
    return int(text)


if __name__ == "__main__":
    sys.exit(main())
