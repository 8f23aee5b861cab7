"""Where a training text comes from: files of one kind, or a data set of the hub; and which of its columns are read."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import datasets

from common.errors import DISK, BadInput
from common.files import digest, find_files
from data.lines import content_hash

VERSION = 2  # part of the cache's keys: raise it when the same bytes would give other rows
NLI_COLUMNS, LABEL = ("premise", "hypothesis"), "label"
_KINDS = {
    ".csv": "csv", ".json": "json", ".jsonl": "json", ".ndjson": "json", ".parquet": "parquet", ".arrow": "arrow",
    ".feather": "arrow",
}  # fmt: skip
_PACKED = {".gz", ".xz", ".zst", ".bz2"}


@dataclass(frozen=True)
class Source:
    """A text and how to read it.

    Args:
        files: of one kind, read in this order. By its name a file is a table (csv, json, jsonl, parquet, arrow) or
            lines of text; compressed ones too.
        columns: tab-separated sentences in a line without column names.
        names: the columns to read of a table, or of lines below a header of names.
        titled: whether the first column is a title, which may be empty.
        labelled: whether the rows have a column `label` of natural language inference.
        said: what a record calls the text; default: the names of the files.
    """

    files: tuple[Path, ...]
    columns: int = 1
    names: tuple[str, ...] = ()
    titled: bool = False
    labelled: bool = False
    said: str | None = None

    @cached_property
    def kind(self) -> str:
        """The reader of `datasets`; BadInput for files of several kinds."""
        kinds = {_kind(path): path for path in self.files}
        if len(kinds) > 1:
            said = ", ".join(f"{path} ({kind})" for kind, path in kinds.items())
            raise BadInput(f"files of several kinds: {said}; give files of one kind")
        return next(iter(kinds))

    @cached_property
    def read(self) -> tuple[str, ...]:
        """The names of the columns that are read; empty for lines without names."""
        default = NLI_COLUMNS if self.labelled else () if self.kind == "text" else ("text",)
        return self.names or default

    @property
    def width(self) -> int:
        """Sentences in a row."""
        return len(self.read) or self.columns

    @property
    def file_names(self) -> list[str]:
        """What a record calls the text."""
        return [self.said] if self.said else [path.name for path in self.files]

    @cached_property
    def sha256(self) -> str:
        """The content hash of the files."""
        return content_hash(self.files)

    def key(self, *more) -> str:
        """Of a cache folder: changes with the content, and with how it is read."""
        how = [self.kind, self.columns, self.read, self.titled, self.labelled]
        return digest([VERSION, self.sha256, how, *more])[:32]


def source_of(args, labelled: bool = False, own: Sequence[str | Path] = ()) -> Source:
    """The text that the flags, `common.arguments.DataArguments`, name; of labelled pairs with `labelled`.

    `own` are folders that the command itself writes. BadInput where the flags name no text or two, or contradict its
    kind, or where a file or data set is not there.
    """
    columns = getattr(args, "columns", 1)
    if not 1 <= columns <= 3:
        raise BadInput(f"--columns {columns}: from 1 to 3")
    if args.title_column and labelled:
        raise BadInput("--title_column: labelled pairs have no titles")
    said = None
    if args.dataset_name:
        if args.train_file:
            raise BadInput("give one of --train_file and --dataset_name")
        files, said = _from_hub(args), args.dataset_name
    else:
        files = find_files(args.train_file, args.data_dir, own)
    titles = [args.title_column] if args.title_column else []
    names = (*titles, *(args.text_column or (["text"] if titles else [])))
    source = Source(tuple(files), columns, names, bool(args.title_column), labelled, said)
    if source.read and columns not in (1, source.width):
        raise BadInput(f"--columns {columns}: is for lines without names; name the columns by --text_column")
    return source


def _kind(path: Path) -> str:
    suffixes = [suffix.lower() for suffix in path.suffixes]
    if suffixes and suffixes[-1] in _PACKED:
        suffixes.pop()
    return _KINDS.get(suffixes[-1], "text") if suffixes else "text"


def _from_hub(args) -> list[Path]:
    """The Arrow files that the library has made of a data set; the hub (HF_ENDPOINT, HF_TOKEN) is asked by it."""
    name, config, split = args.dataset_name, args.dataset_config_name, args.dataset_split
    if "[" in split:
        raise BadInput(f"--dataset_split {split}: name whole splits; --max_rows draws a part of the rows")
    if Path(name).exists():
        raise BadInput(f"--dataset_name {name}: is a local path; give it by --train_file")
    try:
        found = datasets.load_dataset(name, config, split=split, cache_dir=str(Path(args.cache_dir) / "hub"))
    except Exception as error:  # whatever the library raises, the names or the connection are the cause
        cause = first_cause(error)
        if isinstance(cause, OSError) and cause.errno in DISK:
            raise cause from error
        reason = " ".join(str(error).split())[:300] or type(error).__name__
        given = f"--dataset_name {name} --dataset_config_name {config} --dataset_split {split}"
        raise BadInput(f"{given}: cannot be loaded ({reason}); look at the names, HF_ENDPOINT and HF_TOKEN") from error
    return [Path(each["filename"]) for each in found.cache_files]


def first_cause(error: BaseException) -> BaseException:
    """The error at the beginning of a chain."""
    while error.__cause__ is not None:
        error = error.__cause__
    return error
