"""Refuses files that do not hold one sentence a line: CSV, JSON, Parquet, Arrow, and files with a header.

Read as lines, they would silently train a model on commas, braces and field names. The error shows a command that
extracts the sentences. A file is recognised by its name or its first lines. If in doubt it is read: quotation marks and
commas alone do not make a table.
"""

from __future__ import annotations

import json
import re
import shlex
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

from common.errors import BadInput

LOOKED_AT = 100  # lines
_FEWEST = 5  # lines with quoted cells; fewer may be a dialogue
_PACKED = {".gz": "gzip", ".xz": "xz", ".zst": "zstd"}
_KINDS = {
    ".csv": "CSV", ".jsonl": "JSON lines", ".ndjson": "JSON lines", ".json": "JSON", ".parquet": "Parquet",
    ".arrow": "Arrow", ".feather": "Feather",
}  # fmt: skip
_LEAVE = "sys.stdout.flush(); os._exit(0)"  # pyarrow's threads may abort a short program at a normal exit
# Programs that print the sentences in standard input, one a line; a cell may contain line ends.
_PROGRAMS = {
    "CSV": "import csv,sys; [print(*row['text'].split()) for row in csv.DictReader(sys.stdin)]",
    "JSON lines": "import json,sys; [print(*json.loads(line)['text'].split()) for line in sys.stdin]",
    "JSON": "import json,sys; [print(*row['text'].split()) for row in json.load(sys.stdin)]",
    "Parquet": "import os,pyarrow as pa,pyarrow.parquet as pq,sys; [print(*text.split()) for text in "
    f"pq.read_table(pa.BufferReader(sys.stdin.buffer.read()),use_threads=False)['text'].to_pylist()]; {_LEAVE}",
    "Arrow": "import os,pyarrow as pa,sys; [print(*text.split()) for text in "
    f"pa.ipc.open_stream(sys.stdin.buffer).read_all()['text'].to_pylist()]; {_LEAVE}",
    "Feather": "import os,pyarrow as pa,sys; [print(*text.split()) for text in "
    f"pa.ipc.open_file(sys.stdin.buffer.read()).read_all()['text'].to_pylist()]; {_LEAVE}",
}
_CELL = r'(?: ?"(?:[^"]|"")*"|[^\s",][^",]*|)'
_QUOTED_ROW = re.compile(rf"{_CELL}(?:,{_CELL})+")
_QUOTED_CELL = re.compile(r'"(?:[^"]|"")*"')
_FIELDS = set(
    "text sentence sentences premise hypothesis label labels gold_label score id idx index anchor positive negative "
    "query document passage title body source target question answer".split()
)
_NUMBERED = re.compile(r"[a-z]+(?:_[a-z0-9]+|\d)+")


def refuse_by_name(path: Path) -> None:
    """BadInput for a file named as CSV, JSON, Parquet or Arrow, compressed or not."""
    suffixes = [suffix.lower() for suffix in path.suffixes]
    if suffixes and suffixes[-1] in _PACKED:
        suffixes.pop()
    kind = _KINDS.get(suffixes[-1]) if suffixes else None
    if kind:
        raise _refused(path, f"{kind} by its name", kind)


def refuse_by_lines(path: Path, lines: Sequence[str]) -> None:
    """BadInput if the first lines begin with column names, or are mostly JSON objects or quoted rows."""
    lines = [line for line in lines if line.strip()]
    if sum(map(_is_object, lines)) > len(lines) / 2:
        raise _refused(path, "most of its first lines are JSON objects", "JSON lines")
    shapes = Counter(shape for line in lines if (shape := _quoted_shape(line)))
    if len(lines) >= _FEWEST and max(shapes.values(), default=0) > len(lines) / 2:
        raise _refused(path, "most of its first lines are rows of quoted cells", "CSV")
    if lines and len(cells := [cell.strip(' "') for cell in lines[0].split(",")]) > 1 and all(map(_is_name, cells)):
        raise _refused(path, f"its first line is a header ({', '.join(cells)})", "CSV")


def refuse_header(path: Path, number: int, row: Sequence[str]) -> None:
    """BadInput for a first row of column names; a single word counts as one only in a `.tsv`."""
    if (len(row) > 1 or ".tsv" in path.suffixes) and all(map(_is_name, row)):
        raise BadInput(
            f"{path}:{number}: a header ({', '.join(row)}), not a row of sentences; remove this line, and every column "
            "that holds no sentences"
        )


def _is_name(cell: str) -> bool:
    return cell in _FIELDS or _NUMBERED.fullmatch(cell) is not None


def _is_object(line: str) -> bool:
    try:
        return line.lstrip().startswith("{") and isinstance(json.loads(line), dict)
    except (ValueError, RecursionError):
        return False


def _quoted_shape(line: str) -> tuple[int, int] | None:
    """(cells, quoted cells) of a row with quoted cells, None for other lines."""
    if '"' not in line or not _QUOTED_ROW.fullmatch(line):
        return None
    bare, quoted = _QUOTED_CELL.subn("", line)
    return bare.count(",") + 1, quoted


def _refused(path: Path, why: str, kind: str) -> BadInput:
    name, program = shlex.quote(str(path)), f'python -c "{_PROGRAMS[kind]}"'
    unpack = _PACKED.get(path.suffix.lower())
    command = f"{unpack} -dc {name} | {program}" if unpack else f"{program} < {name}"
    return BadInput(
        f"{path}: {why}, not one sentence a line; extract a column (replace 'text' by its name): "
        f"{command} > sentences.txt"
    )
