"""The source of a training text: files of one format or a dataset on the hub, and its columns."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from common.arguments import LABEL, NLI_COLUMNS
from common.errors import DISK, BadInput, brief
from common.files import digest, find_files
from data.lines import content_hash, reader_of

VERSION = 7  # part of the cache keys: raise it if the same bytes would give other rows


@dataclass(frozen=True)
class Source:
    """A text and how to read it.

    Args:
        files: files of one format, read in this order. A file's name decides whether it is a table
            (csv, json, jsonl, parquet, arrow) or lines of text, compressed or not.
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
    def reader(self) -> str:
        """How the files are read, see `reader_of`; BadInput for files of several formats."""
        readers = {reader_of(path): path for path in self.files}
        if len(readers) > 1:
            examples = ", ".join(f"{path} ({reader})" for reader, path in readers.items())
            raise BadInput(f"files of several formats: {examples}; give files of one format")
        return next(iter(readers))

    @cached_property
    def read(self) -> tuple[str, ...]:
        """The names of the columns to read; empty for lines without a header."""
        if self.names:
            return self.names
        if self.labelled:
            return NLI_COLUMNS
        return () if self.reader == "text" else ("text",)

    @property
    def required(self) -> list[str]:
        """The columns that a table must have: those to read, and the label's."""
        return [*self.read, self.label] if self.labelled else [*self.read]

    @property
    def width(self) -> int:
        """Sentences per row."""
        return len(self.read) or self.columns

    @property
    def file_names(self) -> list[str]:
        """The names of the text in run.json."""
        return [self.dataset] if self.dataset else [path.name for path in self.files]

    @property
    def described(self) -> str:
        """The text in a message."""
        more = f" and {len(self.files) - 1} more" if self.files[1:] else ""
        return f"{self.dataset or self.files[0]}{more}"

    @cached_property
    def sha256(self) -> str:
        """The content hash of the files."""
        return content_hash(self.files)

    def check_unchanged(self) -> None:
        """Raise BadInput if a file has changed since `sha256` was computed; call after reading."""
        if content_hash(self.files) != self.sha256:
            names = ", ".join(map(str, self.files))[:200]
            raise BadInput(f"{names}: changed while it was read; run the command again")

    def check_columns(self, path: Path, present: Iterable[str]) -> None:
        """Raise BadInput for the first required column that a table lacks."""
        present = [*present]
        for name in self.required:
            if name not in present:
                raise BadInput(
                    f"{path}: no column '{name}' (see --text_column) among "
                    f"{', '.join(present)[:200]}"
                )

    def key(self, *more) -> str:
        """The key of a cache folder: changes with the content and with how it is read."""
        how = [self.reader, self.columns, self.read, self.titled, self.labelled and self.label]
        return digest([VERSION, self.sha256, how, *more])[:32]


def source_of(args, labelled: bool = False, written: Sequence[str | Path] = ()) -> Source:
    """Return the text that the flags, `DataArguments`, name; `written`: the command's own folders.

    Raises:
        BadInput: the flags name no text or two, or columns that the text would silently not be read
            by; a file or dataset does not exist.
    """
    if bool(args.dataset_name) == bool(args.train_file):
        raise BadInput("give either --train_file, the text to train on, or --dataset_name")
    if args.dataset_name:
        files = _from_hub(args)
    else:
        files = find_files(args.train_file, args.data_dir, written)
    names, label = [*args.text_column], LABEL
    if labelled and len(names) not in (0, 2, 3):
        said = "labelled pairs have two texts, such as premise hypothesis, and may name their label"
        raise BadInput(f"--text_column {' '.join(names)}: {said}")
    if labelled and len(names) == 3:
        label = names.pop()
    columns = getattr(args, "columns", 1)
    source = Source(
        files=tuple(files),
        columns=columns,
        names=tuple(names),
        labelled=labelled,
        dataset=args.dataset_name[0] if args.dataset_name else None,
        label=label,
    )
    if source.read and columns not in (1, source.width):
        raise BadInput(
            f"--columns {columns}: only for lines without a header; name the columns with "
            "--text_column"
        )
    return source


def _from_hub(args) -> list[Path]:
    """Download a dataset through the library (HF_ENDPOINT, HF_TOKEN) and return its Arrow files."""
    import datasets  # here: a slow import

    said = f"--dataset_name {' '.join(args.dataset_name)}"
    if len(args.dataset_name) > 3:
        raise BadInput(f"{said}: give a name, a configuration and a split at most")
    name, config, split = [*args.dataset_name, None, None][:3]
    if split and "[" in split:  # the files below would be those of the whole split
        raise BadInput(f"{said}: name a whole split; --max_rows samples rows")
    try:
        dataset = datasets.load_dataset(
            name, config, split=split or "train", cache_dir=str(Path(args.cache_dir) / "hub")
        )
    except (OSError, ValueError, datasets.exceptions.DatasetsError) as error:
        if getattr(error, "errno", None) in DISK:
            raise
        raise BadInput(f"{said}: cannot be loaded ({brief(error)})") from error
    return [Path(file["filename"]) for file in dataset.cache_files]
