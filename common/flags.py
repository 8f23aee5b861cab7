"""Flags of every command: one line for an error, and `--data-dir` for `--data_dir`."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence

from common.errors import BadInput


class Parser(argparse.ArgumentParser):
    """An ArgumentParser that raises BadInput instead of printing its usage, and wants whole names of flags."""

    def __init__(self, *args, allow_abbrev: bool = False, **named) -> None:
        super().__init__(*args, allow_abbrev=allow_abbrev, **named)

    def parse_known_args(self, args: Sequence[str] | None = None, namespace: argparse.Namespace | None = None):
        return super().parse_known_args(underscored(sys.argv[1:] if args is None else args), namespace)

    def error(self, message: str):
        raise BadInput(f"{message} (--help lists all flags)")


def underscored(words: Sequence[str]) -> list[str]:
    """Arguments with underscores for dashes in the names of flags; values stay as they are."""
    flags = words[: words.index("--")] if "--" in words else words
    return [_underscored(word) for word in flags] + list(words[len(flags) :])


def _underscored(word: str) -> str:
    name, equals, value = word.partition("=")
    return f"--{name[2:].replace('-', '_')}{equals}{value}" if word.startswith("--") else word


def positive(text: str) -> int:
    """The type of a flag for a count: a whole number of at least 1."""
    if not text.isdecimal() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"'{text}' is not a whole number from 1 upwards")
    return int(text)
