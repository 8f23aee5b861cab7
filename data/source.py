"""The source of a training text, files of one kind or a dataset on the hub, and the columns to read."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import datasets

from common.arguments import LABEL, NLI_COLUMNS
from common.errors import DISK, BadInput, ProjectError, brief
from common.files import digest, find_files
from data.lines import content_hash, kind_of

VERSION = 4  # part of the cache keys: raise it if the same bytes would give other rows


@dataclass(frozen=True)
class Source:
    """A text and how to read it.

    Args:
        files: files of one kind, read in this order. A file's name decides whether it is a table (csv, json, jsonl,
            parquet, arrow) or lines of text, compressed or not.
        columns: tab-separated sentences per line, without column names.
        names: the columns to read from a table, or from lines with a header.
        titled: whether the first column is a title, which may be empty.
        labelled: whether the rows have a column with a label for natural language inference.
        label: its name.
        dataset: the hub dataset that the files come from, if any.
    """

    files: tuple[Path, ...]
    columns: int = 1
    names: tuple[str, ...] = ()
    titled: bool = False
    labelled: bool = False
    dataset: str | None = None
    label: str = LABEL

    @cached_property
    def kind(self) -> str:
        """The reader in `datasets`; BadInput for files of several kinds."""
        kinds = {kind_of(path): path for path in self.files}
        if len(kinds) > 1:
            examples = ", ".join(f"{path} ({kind})" for kind, path in kinds.items())
            raise BadInput(f"files of several kinds: {examples}; give files of one kind")
        return next(iter(kinds))

    @cached_property
    def read(self) -> tuple[str, ...]:
        """The names of the columns to read; empty for lines without a header."""
        default = NLI_COLUMNS if self.labelled else () if self.kind == "text" else ("text",)
        return self.names or default

    @property
    def width(self) -> int:
        """Sentences per row."""
        return len(self.read) or self.columns

    @property
    def file_names(self) -> list[str]:
        """The names of the text in run.json."""
        return [self.dataset] if self.dataset else [path.name for path in self.files]

    @cached_property
    def sha256(self) -> str:
        """The content hash of the files."""
        return content_hash(self.files)

    def check_unchanged(self) -> None:
        """Raise BadInput if a file has changed since `sha256` was computed; called after the files were read."""
        if content_hash(self.files) != self.sha256:
            raise BadInput(f"{', '.join(map(str, self.files))[:200]}: changed while it was read; run the command again")

    def no_column(self, place: str | Path, name: str, found: Iterable[str]) -> str:
        """The message for a column that a table lacks."""
        flag = "--title_column" if self.titled and name == self.read[0] else "--text_column"
        flag = "labelled pairs" if name == self.label else flag
        return f"{place}: no column '{name}' ({flag}) among {', '.join(found)}"

    def key(self, *more) -> str:
        """The key of a cache folder: changes with the content and with how it is read."""
        how = [self.kind, self.columns, self.read, self.titled, self.labelled and self.label]
        return digest([VERSION, self.sha256, how, *more])[:32]


def source_of(args, labelled: bool = False, own: Sequence[str | Path] = ()) -> Source:
    """Return the text that the flags, `common.arguments.DataArguments`, name; `labelled` for labelled pairs.

    `own` are folders that the command writes. BadInput if the flags name no text or two, do not fit its kind, or if a
    file or dataset does not exist.
    """
    columns = getattr(args, "columns", 1)
    if not 1 <= columns <= 3:
        raise BadInput(f"--columns {columns}: must be from 1 to 3")
    if args.title_column and labelled:
        raise BadInput("--title_column: labelled pairs have no titles")
    _check_place(args)
    files = _from_hub(args) if args.dataset_name else find_files(args.train_file, args.data_dir, own)
    titles = [args.title_column] if args.title_column else []
    names = (*titles, *(args.text_column or (["text"] if titles else [])))
    if twice := next((name for name in names if names.count(name) > 1), None):
        raise BadInput(f"--text_column and --title_column: name column '{twice}' twice")
    if labelled and len(names) not in (0, 2, 3):
        raise BadInput(f"--text_column {' '.join(names)}: labelled pairs have two texts, such as premise hypothesis, "
                       "and, if its name is not label, the column of the label")  # fmt: skip
    names, label = (names[:2], *names[2:]) if labelled and names[2:] else (names, LABEL)
    source = Source(tuple(files), columns, names, bool(args.title_column), labelled, args.dataset_name or None, label)
    if source.read and columns not in (1, source.width):
        raise BadInput(f"--columns {columns}: only for lines without a header; name columns by --text_column")
    return source


def _check_place(args) -> None:
    if args.dataset_name and args.train_file:
        raise BadInput("give either --train_file or --dataset_name, not both")
    for name, default in (("dataset_config_name", None), ("dataset_split", "train")):
        if (value := getattr(args, name)) != default and not args.dataset_name:
            raise BadInput(f"--{name} {value}: has no effect without --dataset_name")


def _from_hub(args) -> list[Path]:
    """Download a dataset through the library (HF_ENDPOINT, HF_TOKEN) and return its Arrow files."""
    name, config, split = args.dataset_name, args.dataset_config_name, args.dataset_split
    if "[" in split:
        raise BadInput(f"--dataset_split {split}: name a whole split; --max_rows samples rows")
    if Path(name).exists():
        raise BadInput(f"--dataset_name {name}: is a local path; give it by --train_file")
    try:
        dataset = datasets.load_dataset(name, config, split=split, cache_dir=str(Path(args.cache_dir) / "hub"))
    except Exception as error:  # whatever the library raises, the names or the connection are at fault
        cause = root_cause(error)
        if isinstance(cause, OSError) and cause.errno in DISK:
            raise cause from error
        flags = f"--dataset_name {name} --dataset_config_name {config} --dataset_split {split}"
        raise BadInput(
            f"{flags}: cannot be loaded ({brief(error)}); check the names, HF_ENDPOINT and HF_TOKEN"
        ) from error
    return [Path(file["filename"]) for file in dataset.cache_files]


def root_cause(error: BaseException) -> BaseException:
    """Return the first error of a chain, or the first of ours in it."""
    while error.__cause__ is not None and not isinstance(error, ProjectError):
        error = error.__cause__
    return error
