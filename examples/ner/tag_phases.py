"""The book tagger once more, with its phases and batches measured from inside.

    python tag_phases.py alice.txt out.tsv 50
    weigh run -- python tag_phases.py alice.txt out.tsv 50

The first prints weigh's report on stderr at the end; the second keeps it in the record.
"""

import argparse
import sys

import tag

import weigh


def main() -> int:
    """Read the command line, tag the book, say how much was found."""
    parser = argparse.ArgumentParser(
        description="Tag the named entities of a text into a TSV file."
    )
    parser.add_argument("text", help="plain text, UTF-8")
    parser.add_argument("output", help="TSV file to write")
    parser.add_argument("batch_size", type=tag.batch_size, help="paragraphs at a time")
    options = parser.parse_args()
    size = options.batch_size
    try:
        with weigh.phase("read"):
            paragraphs = tag.read_paragraphs(options.text)
        with weigh.phase("load model"):
            model = tag.load_model()
        batches = [
            paragraphs[first : first + size]
            for first in range(0, len(paragraphs), size)
        ]
        rows: list[tag.Row] = []
        done = 0
        with weigh.phase("tag"):
            for batch in weigh.batches(batches, size=size):
                for found in tag.tag(batch, model, size):
                    rows += [(done + number, *rest) for number, *rest in found]
                done += len(batch)
        write(options.output, rows)
    except OSError as error:
        return tag.fail(f"{error.filename}: {error.strerror}")
    except UnicodeDecodeError:
        return tag.fail(f"{options.text}: not UTF-8 text")
    except ImportError as error:
        return tag.fail(f"{error}\n  pip install -r requirements.txt brings it")
    print(f"{len(paragraphs)} paragraphs, {len(rows)} entities -> {options.output}")
    return 0


@weigh.measured
def write(path: str, rows: list[tag.Row]) -> None:
    """Write the entities as TSV."""
    with open(path, "w", encoding="utf-8") as file:
        print(*tag.COLUMNS, sep="\t", file=file)
        for row in rows:
            print(*row, sep="\t", file=file)


if __name__ == "__main__":
    sys.exit(main())
