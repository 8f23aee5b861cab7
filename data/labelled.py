"""Reader of labelled pairs, as natural language inference has them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

from common.errors import BadInput
from data.reader import NLI_HEADER, Reader

NLI_LABELS = ("contradiction", "entailment", "neutral")


class LabelledReader(Reader):
    """Iterate over (premise, hypothesis, label) of natural language inference sets.

    The first line of every file that is not empty is the header `premise hypothesis label`, tab-separated. Rows on
    which the annotators did not agree, labelled `-` in SNLI, are left out and counted.

    Raises:
        BadInput: while iterating, with file and line: as `Reader`; another header; an unknown label.
    """

    has_header = True

    def __init__(self, paths: Sequence[str | Path]) -> None:
        super().__init__(paths, len(NLI_HEADER))
        self.undecided = 0

    def __iter__(self) -> Iterator[tuple[str, ...]]:
        self.undecided = 0
        return super().__iter__()

    def _rows(self, path: Path) -> Iterator[tuple[str, ...]]:
        self._header_due = True
        return super()._rows(path)

    def _row(self, text: str, path: Path, number: int) -> tuple[str, ...] | None:
        row = super()._row(text, path, number)
        if self._header_due:
            if row != NLI_HEADER:
                raise BadInput(f"{path}:{number}: the header is not `{' '.join(NLI_HEADER)}`, tab-separated")
            self._header_due = False
            return None
        if row[2] == "-":
            self.undecided += 1
            return None
        if row[2] not in NLI_LABELS:
            raise BadInput(f"{path}:{number}: label '{row[2][:40]}' is not one of {', '.join(NLI_LABELS)}")
        return row


def reader_of(paths: Sequence[str | Path], columns: int | None) -> Reader:
    """A Reader of rows of so many sentences, or, for None, a LabelledReader."""
    return LabelledReader(paths) if columns is None else Reader(paths, columns)
