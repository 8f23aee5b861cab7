"""Flags of every command: one-line errors, a checked `--output`."""

from __future__ import annotations

import argparse
import difflib
import shlex
import sys
import tempfile
from collections import Counter
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, NoReturn

from common.errors import BadInput, unwritable
from common.old_flags import RENAMED


class _Help(argparse.RawDescriptionHelpFormatter):
    """Descriptions as written, and the default behind every help that does not explain it."""

    def _get_help_string(self, action: argparse.Action) -> str:
        default, said = action.default, action.help or ""
        unset = isinstance(default, bool) or default in (None, [], argparse.SUPPRESS)
        if unset or "default" in said:
            return said
        words = default if isinstance(default, list) else [default]
        shown = shlex.join(map(str, words)).replace("%", "%%")
        return f"{said} (default: {shown})"


class Parser(argparse.ArgumentParser):
    """An ArgumentParser that raises BadInput instead of printing its usage; no abbreviated flags.

    Attributes:
        old: flags of other repositories, and what stands for them, see `common.old_flags`.
    """

    old: Mapping[str, str] = {}

    def __init__(self, *args: Any, **named: Any) -> None:
        named = {"formatter_class": _Help, "allow_abbrev": False, **named}
        super().__init__(*args, **named)

    def parse_args(self, args: Any = None, namespace: Any = None) -> Any:
        words = sys.argv[1:] if args is None else args
        names = Counter(word.split("=")[0] for word in words if word.startswith("--"))
        for name, times in names.items():
            if name[2:] in self.old and name not in self._option_string_actions:
                self.error(f"unrecognized arguments: {name}")  # not of an argument that is missing
            if times > 1:  # argparse would drop the first value
                raise BadInput(f"{name}: given twice; give it once, with all its values")
        return super().parse_args(args, namespace)

    def error(self, message: str) -> NoReturn:
        unknown = message.removeprefix("unrecognized arguments: ")
        if unknown == message:
            raise BadInput(f"{message} (--help lists all flags)")
        words = unknown.split()
        word = next((word for word in words if word.startswith("--")), words[0]).split("=")[0]
        raise BadInput(f"unknown argument '{word}'; {self.instead(word.lstrip('-'))}")

    def instead(self, name: str) -> str:
        """What to use instead of a flag that does not exist."""
        if name in self.old:
            return f"here: {self.old[name].replace('`', '')}"
        if near := nearest(f"--{name}", self._option_string_actions):
            return near.strip("; ")
        dashed = self._get_positional_actions() and "; a text that begins with - goes after --"
        return f"--help lists all flags{dashed or ''}"


def nearest(name: str, known: Iterable[str]) -> str:
    """The new name, or a question about the name that may be meant, before more; or nothing."""
    if (new := RENAMED.get(name)) and new in known:
        return f"it is '{new}' now; "
    near = difflib.get_close_matches(name, known, n=1)
    return f"did you mean '{near[0]}'? " if near else ""


def positive(text: str) -> int:
    """Parse a count: an integer of at least 1."""
    if not text.isdecimal() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"'{text}' is not an integer of 1 or more")
    return int(text)


def output_folder(path: str | Path, flag: str = "output") -> Path:
    """The folder that a flag names, created if missing.

    BadInput or StorageError if no file can be written there.
    """
    try:
        Path(path).mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=path):
            return Path(path)
    except OSError as error:
        raise unwritable(
            error, f"--{flag}: cannot be written in {path} ({error.strerror})"
        ) from error


def check_output(output: str | None, inputs: Iterable[str | None], first: bytes) -> None:
    """Check `--output` before any work; `first` are the bytes with which the command's files begin.

    Raises:
        BadInput: `output` is an input or not a file of this command, or is in a folder that cannot
            be written.
    """
    if output is None:
        return
    path = Path(output)
    output_folder(path.absolute().parent)
    if not path.exists():
        return
    refused = any(name and Path(name).exists() and path.samefile(name) for name in inputs)
    if path.is_file():
        with path.open("rb") as file:
            head = file.read(len(first)).lower()
        refused |= head != first and bool(head.strip(b"[]\n"))  # it may be an empty list
    if refused or not path.is_file():
        raise BadInput(
            f"--output {output}: is an input of this command, or has content this command did not "
            "write"
        )


def add_pooling(parser: argparse.ArgumentParser) -> None:
    """Add `--pooling` for commands that read any encoder."""
    said = "pooling, if the model does not state it; pooler: [CLS] after the checkpoint's pooler "
    parser.add_argument("--pooling", help=f"{said}(supervised SimCSE)")


def automatic(text: str) -> bool | None:
    """Parse `true`, `false` or, as None, `auto`."""
    values = {"auto": None, "true": True, "false": False}
    if text not in values:
        raise argparse.ArgumentTypeError(f"'{text}' is not auto, true or false")
    return values[text]


def add_encoder(parser: argparse.ArgumentParser, auto: bool = False) -> None:
    """Add the flags of commands that encode: `--pooling`, `--max_length`, `--bf16`.

    With `auto`, the precision is chosen unless it is given.
    """
    add_pooling(parser)
    parser.add_argument(
        "--max_length", type=int, help="maximum tokens per text (default: the model's limit)"
    )
    said = "compute in bfloat16: faster; scores change by about 0.01"
    if auto:
        said += "; auto, the default: where the processor or GPU has it"
        parser.add_argument(
            "--bf16", type=automatic, nargs="?", const="true", default="auto", help=said
        )
    else:
        parser.add_argument("--bf16", action="store_true", help=said)


def add_cache(parser: argparse.ArgumentParser, of: str) -> None:
    """Add `--cache_dir` for commands that keep vectors."""
    kept = f"folder that keeps the vectors of {of} by their text, for all commands"
    parser.add_argument("--cache_dir", default="corpora/cache", help=kept)


def add_columns(parser: argparse.ArgumentParser) -> None:
    """Add `--text_column` and `--title_column` for commands that read documents."""
    parser.add_argument("--text_column", help="of tables and .jsonl (default: text)")
    title = "of tables and .jsonl (default: title in .jsonl, none in tables)"
    parser.add_argument("--title_column", help=title)


def add_prompts(parser: argparse.ArgumentParser, *roles: str) -> None:
    """Add `--query_prompt` or `--document_prompt`."""
    for role in roles:
        parser.add_argument(
            f"--{role}_prompt",
            help=f"text put before every {role} (default: the model's own prompt)",
        )


def labelled(models: Iterable[str]) -> dict[str, str]:
    """Map labels to folders or hub ids, in the order given.

    An existing folder may have an equals sign in its name.

    Raises:
        BadInput: two models have one label.
    """
    labels: dict[str, str] = {}
    for model in models:
        name, equals, path = model.partition("=")
        if not equals or "/" in name or Path(model).exists():
            name, path = Path(model).absolute().name, model
        if name in labels:
            raise BadInput(f"two models are named '{name}'; rename one with NAME={path}")
        labels[name] = path
    return labels
