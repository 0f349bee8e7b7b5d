"""A small transformer that separates names from other words, and its training.

    python learn.py alice.txt model.pt

The labels come from the book itself: a word that is written with a capital inside a
sentence is taken for a name; the model reads it in lower case. Learning takes some
seconds, once, on a CPU: as a model is fetched before the job that uses it.
"""

import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import torch
from torch import nn

WORDS = 4000
WIDTH = 128
LONGEST = 256  # words of a paragraph; what is beyond is left out
LEARN_FROM = 400  # paragraphs
MARKS = ".,;:!?'\"()*-`_[]"

Paragraph = list[str]
Numbers = dict[str, int]


class Tagger(nn.Module):
    """Word numbers in, for each word the score of being a name out."""

    def __init__(self) -> None:
        super().__init__()
        self.words = nn.Embedding(WORDS, WIDTH, padding_idx=0)
        self.places = nn.Embedding(LONGEST, WIDTH)
        layer = nn.TransformerEncoderLayer(
            WIDTH, 4, 4 * WIDTH, dropout=0.0, batch_first=True
        )
        self.layers = nn.TransformerEncoder(layer, 2, enable_nested_tensor=False)
        self.score = nn.Linear(WIDTH, 1)

    def forward(self, numbers: torch.Tensor) -> torch.Tensor:
        """Give the scores of a batch of paragraphs, padded with zeros."""
        places = torch.arange(numbers.shape[1], device=numbers.device)
        seen = self.words(numbers) + self.places(places)
        hidden = self.layers(seen, src_key_padding_mask=numbers == 0)
        scores: torch.Tensor = self.score(hidden).squeeze(2)
        return scores


def read(path: str) -> list[Paragraph]:
    """Read the paragraphs of a text, each as its words."""
    text = Path(path).read_text(encoding="utf-8").replace("\x1a", "")
    cut = [paragraph.split() for paragraph in text.split("\n\n")]
    return [words[:LONGEST] for words in cut if words]


def plain(word: str) -> str:
    """Give a word as the tagger reads it."""
    return word.strip(MARKS).lower()


def vocabulary(paragraphs: list[Paragraph]) -> Numbers:
    """Number the commonest words; 0 is padding, 1 any other word."""
    counted = Counter(plain(word) for words in paragraphs for word in words)
    common = [word for word, _ in counted.most_common(WORDS - 2)]
    return {word: number for number, word in enumerate(common, start=2)}


def padded(batch: list[Paragraph], known: Numbers) -> torch.Tensor:
    """Give the word numbers of a batch, as wide as its longest paragraph."""
    rows = [torch.tensor([known.get(plain(w), 1) for w in words]) for words in batch]
    return nn.utils.rnn.pad_sequence(rows, batch_first=True)


def learn(
    model: nn.Module, paragraphs: list[Paragraph], known: Numbers, device: str = "cpu"
) -> None:
    """Learn which words are names, 8 paragraphs at a time."""
    optimizer = torch.optim.Adam(model.parameters(), lr=2e-3)
    for first in range(0, len(paragraphs), 8):
        batch = paragraphs[first : first + 8]
        numbers = padded(batch, known).to(device)
        right = nn.utils.rnn.pad_sequence(
            [torch.tensor(list(capitals(words))) for words in batch], batch_first=True
        ).to(device)
        losses = nn.functional.binary_cross_entropy_with_logits(
            model(numbers), right, reduction="none"
        )
        losses[numbers > 0].mean().backward()
        optimizer.step()
        optimizer.zero_grad()


def capitals(words: Paragraph) -> Iterator[float]:
    """Say of each word whether it has a capital that no sentence gave it."""
    begins = True
    for word in words:
        bare = word.lstrip(MARKS)
        inside = not begins and word[:1].isalpha()
        yield float(inside and bare[:1].isupper() and bare[:2] not in {"I", "I'"})
        begins = word.rstrip("'\")")[-1:] in {".", "!", "?", ":"}


def main() -> None:
    """Learn from the first text named, write the model to the second file."""
    text, output = sys.argv[1:]
    torch.manual_seed(1)
    paragraphs = read(text)
    known = vocabulary(paragraphs)
    model = Tagger()
    learn(model, paragraphs[:LEARN_FROM], known)
    torch.save({"words": known, "weights": model.state_dict()}, output)
    print(f"learnt from {LEARN_FROM} of {len(paragraphs)} paragraphs -> {output}")


if __name__ == "__main__":
    main()
