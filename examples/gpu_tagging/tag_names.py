"""Tag the names in a book with a small transformer, on a GPU or on the CPU.

    python tag_names.py model.pt alice.txt out.tsv 50
    python tag_names.py model.pt alice.txt out.tsv 50 --device cpu

A batch is as wide as its longest paragraph. `learn.py` makes the model.
"""

import argparse
import sys

import torch
from learn import MARKS, Numbers, Paragraph, Tagger, padded, read

import weigh


def main() -> int:
    """Read the command line, tag, say how much was found."""
    parser = argparse.ArgumentParser(description="Tag the names in a text.")
    parser.add_argument("model", help="what learn.py wrote")
    parser.add_argument("text", help="plain text, UTF-8")
    parser.add_argument("output", help="TSV file to write")
    parser.add_argument("batch_size", type=int, help="paragraphs at a time")
    parser.add_argument("--device", choices=("cuda", "cpu"), default=None)
    options = parser.parse_args()
    device = options.device or ("cuda" if torch.cuda.is_available() else "cpu")
    paragraphs = read(options.text)
    with weigh.phase("load model"):
        kept = torch.load(options.model)
        model = Tagger().to(device)
        model.load_state_dict(kept["weights"])
    size = options.batch_size
    batches = [paragraphs[at : at + size] for at in range(0, len(paragraphs), size)]
    found = 0
    with open(options.output, "w", encoding="utf-8") as file, weigh.phase("tag"):
        for number, batch in enumerate(weigh.batches(batches, size=size)):
            for row, place, word in names(model, batch, kept["words"], device):
                print(number * size + row + 1, place, word, sep="\t", file=file)
                found += 1
    print(f"{len(paragraphs)} paragraphs, {found} names, on {device}")
    return 0


@torch.no_grad()
def names(
    model: Tagger, batch: list[Paragraph], known: Numbers, device: str
) -> list[tuple[int, int, str]]:
    """Give the names of a batch: its paragraph in the batch, its place, the word."""
    model.eval()
    scores = model(padded(batch, known).to(device)).cpu()
    return [
        (row, place, words[place].strip(MARKS))
        for row, words in enumerate(batch)
        for place in (scores[row, : len(words)] > 0).nonzero().flatten().tolist()
    ]


if __name__ == "__main__":
    sys.exit(main())
