"""`python -m eval.encode_corpus SHARDS --model M --output DIR`: encode a corpus of any size."""

import logging
import re
import time
from collections.abc import Iterator, Mapping
from functools import partial
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np

from common.errors import BadInput, run_command
from common.files import files_of, open_regular, sha256
from common.flags import Parser, add_encoder, add_prompts
from common.folders import MANIFEST, cached, read_manifest, refuse_existing, share
from data.lines import is_table, texts_by_line
from data.source import Source
from data.text import rows_of
from eval.encode import Encode, device_here
from eval.vectors import DTYPES, write
from models.encoder import load_encoder

ROWS = 20_000  # texts held at once
logger = logging.getLogger(__name__)


def parser() -> Parser:
    p = Parser(
        prog="python -m eval.encode_corpus",
        description="Encode shards of text into one folder each, with the shard's name and row "
        "order.\nTo resume, run the same command again: finished shards are kept. Several at once "
        "share the shards. See docs/scale.md.",
        epilog="example:\n"
        "  python -m eval.encode_corpus corpus/ --model runs/infocse --output vectors",
    )
    p.add_argument(
        "inputs",
        nargs="+",
        metavar="SHARD",
        help="UTF-8 lines (also .gz, .xz, .bz2, .zst) or tables (.parquet, .arrow, .csv, .tsv, "
        ".jsonl); a folder stands for all files below it",
    )
    p.add_argument("--model", required=True, help="as for `python -m eval`")
    p.add_argument(
        "--output",
        required=True,
        metavar="DIR",
        help="folder for one model's vectors with one setting",
    )
    p.add_argument("--dtype", choices=DTYPES, default="float32", help="type of the vectors")
    p.add_argument("--column", default="text", help="column of tables")
    add_encoder(p)
    add_prompts(p, "document")
    return p


def main(argv: list[str] | None = None) -> list[dict]:
    """Run the command and return the records of the shards.

    Raises:
        BadInput: two shards share an output, or as `encode_shard`.
    """
    args = parser().parse_args(argv)
    output = Path(args.output)
    sources: dict[str, Path] = {}
    for name in args.inputs:
        for path in files_of(Path(name), [output]):
            if (other := sources.setdefault(stem_of(path), path)) is not path:
                raise BadInput(
                    f"{other} and {path} would both be written to {stem_of(path)}/; rename one"
                )
    encoder, tokenizer = load_encoder(
        args.model, args.pooling, args.max_length, {"document": args.document_prompt}
    )
    encode = Encode(encoder.to(device_here()), tokenizer, bf16=args.bf16).of("document")
    origin = {"model": encode.identity, "max_length": encode.max_length, "dtype": args.dtype}
    for folder in sorted(output.glob("*/")):
        refuse_other(folder, origin)
    start, records = time.perf_counter(), dict[str, dict]()

    def do(path: Path, wait: bool) -> None:
        record = encode_shard(encode, output, path, args.dtype, args.column, wait)
        records[stem_of(path)] = record
        state = f"{record['rows']} rows" + ("" if record["new"] else " exist already")
        logger.info("%d of %d shards: %s, %s", len(records), len(sources), record["source"], state)

    share({stem: partial(do, path) for stem, path in sources.items()})
    rows = sum(record["rows"] for record in records.values() if record["new"])
    logger.info("%s: %d new rows in %.1f s", output, rows, time.perf_counter() - start)
    return [records[stem] for stem in sources]


def encode_shard(
    encode: Encode,
    output: Path,
    path: Path,
    dtype: str = "float32",
    column: str = "text",
    wait: bool = True,
) -> dict:
    """Write the vectors of one shard unless they exist, whole; returns its facts.

    They are model, max_length, source, sha256, dtype, rows and width; and `new`: whether it was
    encoded now.

    Raises:
        FolderInUse: another process encodes it, unless `wait` for that.
        BadInput: the shard is unreadable or empty, changes while it is encoded, or has changed
            since it was.
    """
    open_regular(path).close()  # BadInput for a missing file or a pipe
    facts = {"model": encode.identity, "max_length": encode.max_length, "dtype": dtype}
    facts |= {"source": path.name, "sha256": sha256(path)}
    if is_table(path):
        facts["column"] = column

    def parts() -> Iterator[np.ndarray]:
        texts, rows = _texts(path, column), 0
        while piece := list(islice(texts, ROWS)):
            rows += len(piece)
            yield encode(piece)
        if not rows:
            raise BadInput(f"{path}: contains no text; remove it from the inputs")
        if sha256(path) != facts["sha256"]:
            raise BadInput(f"{path}: changed while it was encoded; run the command again")

    folder = output / stem_of(path)

    def make(new: Path) -> None:
        if not (folder / MANIFEST).exists():  # here the lock is held: nobody else writes it now
            refuse_existing(folder)
        facts["rows"], facts["width"] = write(new, parts(), dtype)

    refuse_other(folder, facts)
    cached(folder, make, facts, wait)
    return {**read_manifest(folder)["facts"], "new": "rows" in facts}


def refuse_other(folder: Path, facts: Mapping[str, Any]) -> None:
    """Raise BadInput if a folder has vectors with other facts; a damaged one is made again."""
    try:
        found = read_manifest(folder)["facts"]
    except ValueError:
        return
    names = [name for name, value in facts.items() if found.get(name) != value]
    if names:
        listed = "; ".join(f"{name} {found.get(name)}, now {facts[name]}" for name in names)
        raise BadInput(
            f"{folder}: its vectors have another origin ({listed}); remove it, or choose another "
            "--output"
        )


def stem_of(path: Path) -> str:
    """The name of a shard's folder: the file's, without an ending of compression, then of text."""
    name = path.name
    for endings in (r"\.(gz|xz|bz2|zst)", r"\.(txt|parquet)"):
        name = re.sub(f"{endings}$", "", name)
    return name


def _texts(path: Path, column: str) -> Iterator[str]:
    """The text of every row or line; one that is empty is an empty text, so no row is lost."""
    if is_table(path):
        for _, row in rows_of(Source((path,), names=(column,))):
            yield "" if isinstance(row, str) else row[0]
        return
    for _, line in texts_by_line(path):
        yield line


if __name__ == "__main__":
    run_command(main)
