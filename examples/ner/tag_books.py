"""Tag one book after the other, each into a TSV file of its own.

python tag_books.py tagged 50 alice.txt alice.txt alice.txt
"""

import argparse
import sys
from pathlib import Path

import tag


def main() -> int:
    """Read the command line, tag the books, say how far it is."""
    parser = argparse.ArgumentParser(description="Tag the named entities of books.")
    parser.add_argument("output", type=Path, help="folder for the TSV files")
    parser.add_argument("batch_size", type=tag.batch_size, help="paragraphs at a time")
    parser.add_argument("texts", nargs="+", help="plain text, UTF-8")
    options = parser.parse_args()
    options.output.mkdir(parents=True, exist_ok=True)
    model = tag.load_model()
    for number, text in enumerate(options.texts, start=1):
        paragraphs = tag.read_paragraphs(text)
        with open(options.output / f"{number}.tsv", "w", encoding="utf-8") as file:
            print(*tag.COLUMNS, sep="\t", file=file)
            for rows in tag.tag(paragraphs, model, options.batch_size):
                for row in rows:
                    print(*row, sep="\t", file=file)
        print(f"book {number} of {len(options.texts)}", flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
