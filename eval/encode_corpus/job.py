"""What is done with one shard, and how a later run knows that it is done."""

from __future__ import annotations

import hashlib
import re
from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

from common.errors import BadInput
from common.files import open_regular, sha256
from eval.encode_corpus.inputs import Lines, is_parquet, pieces, stem_of
from eval.encode_corpus.vectors import WRITERS, shape_of, stored
from eval.kept import MANIFEST, claim, read_json, write_json, writing
from eval.task import Encoder

RECORDS = "*.done.json"
_AGAIN = "remove it, and the shard is computed again"


@dataclass(frozen=True)
class Job:
    """The same for every shard; can be pickled, so that it travels to other processes and machines.

    Attributes:
        make_encode: device -> an encoder with `identity` and `max_length`, as `eval.encode.Encode`.
        lines: reads text files.
        folder: where outputs go.
        format: a key of `eval.encode_corpus.vectors.WRITERS`.
        dtype: one of `eval.encode_corpus.vectors.DTYPES`.
        column: of Parquet inputs.
    """

    make_encode: Callable[[str], Encoder]
    lines: Lines
    folder: Path
    format: str = "parquet"
    dtype: str = "float32"
    column: str = "text"

    def outputs(self, path: Path) -> list[Path]:
        """The files of one shard, the entries first and the record, which says that it is done, last."""
        stem = stem_of(path)
        return [self.folder / name for name in (*WRITERS[self.format].names(stem, self.dtype), f"{stem}.done.json")]

    def check(self, paths: Sequence[Path]) -> None:
        """BadInput where two shards would be written to the same file, or one over a file that is not ours."""
        times = Counter(output for path in paths for output in self.outputs(path))
        for output, count in times.items():
            if count > 1:
                both = [str(path) for path in paths if output in self.outputs(path)]
                raise BadInput(f"{both[0]} and {both[1]}: both would be written to {output}; rename one")
        inputs = {path.resolve() for path in paths}
        ours = (self.folder / MANIFEST).is_file() or any(self.folder.glob(RECORDS))  # `claim` asks whose records
        for output in times:
            if output.resolve() in inputs or (not ours and output.exists()):
                raise BadInput(f"{output}: is there already, and vectors would replace it; choose another --output")

    def start(self, device: str) -> Encoder:
        """The encoder, when the folder is found to be for its vectors."""
        encode = self.make_encode(device)
        manifest = {"model": encode.identity, "max_length": encode.max_length, "format": self.format,
                    "dtype": self.dtype}  # fmt: skip
        claim(self.folder, manifest, RECORDS)
        return encode

    def encode_shard(self, encode: Encoder, path: Path) -> dict:
        """Make one shard's vectors unless they are there, and return its record.

        Returns:
            source, sha256, rows, width and files, `new`, whether anything was computed, and `damaged`, why it was
            computed again, or None.

        Raises:
            BadInput: as `pieces`; the shard's text is not the one its vectors were made of; a damaged record.
        """
        source, damaged = _digest(path), None
        *outputs, record = self.outputs(path)
        if all(output.is_file() for output in (*outputs, record)):
            facts = self._checked(path, source, record)
            damaged = self._damage(facts, outputs)
            if damaged is None:
                return {**facts, "new": False, "damaged": None}
        mine = self._begin(path, source, outputs, record)
        record.unlink(missing_ok=True)  # from here on the shard is not done, whatever happens
        try:
            rows, width = self._write(encode, path, outputs)
        except BaseException:
            if not any(output.exists() for output in outputs):
                mine.unlink(missing_ok=True)
            raise
        facts = {"source": path.name, "sha256": source, "rows": rows, "width": width, **self._column(path)}
        facts["files"] = {output.name: sha256(output) for output in outputs}
        write_json(record, facts)
        mine.unlink(missing_ok=True)
        return {**facts, "new": True, "damaged": damaged}

    def _write(self, encode: Encoder, path: Path, outputs: list[Path]) -> tuple[int, int]:
        """The vectors of a shard into its files, each whole or not there; their number and width."""
        rows = width = 0
        with ExitStack() as stack:
            parts = [stack.enter_context(writing(output)) for output in outputs]
            writer = stack.enter_context(WRITERS[self.format](parts))
            for texts in pieces(path, self.column, self.lines):
                vectors = encode(texts)
                writer.append(stored(vectors, self.dtype))
                rows, width = rows + len(vectors), vectors.shape[1]
        return rows, width

    def _begin(self, path: Path, source: str, outputs: list[Path], record: Path) -> Path:
        """A file that says whose text a shard's outputs will be, until its record does.

        Raises:
            BadInput: another text of that name is being written, or was; or an output is nobody knows whose.
        """
        stem = stem_of(path)
        known = re.compile(re.escape(stem) + r"\.[0-9a-f]{16}\.begun")
        mine = self.folder / f"{stem}.{source[:16]}.begun"
        begun = mine.exists()
        if not begun and not record.is_file() and (there := [output for output in outputs if output.exists()]):
            raise BadInput(f"{there[0]}: is there already, and vectors would replace it; choose another --output")
        if record.is_file() and read_json(record, "the record of a shard", _AGAIN).get("sha256") != source:
            raise BadInput(f"{path}: its text has changed since {record} was written; {_AGAIN}")
        mine.touch()
        others = [file for file in self.folder.iterdir() if known.fullmatch(file.name) and file != mine]
        if others:
            mine.unlink(missing_ok=True)
            raise BadInput(
                f"{path}: another text of that name is written to {outputs[0]}; rename one of the two, or, if no other "
                f"command is at work, remove {others[0]}"
            )
        return mine

    def _checked(self, path: Path, source: str, record: Path) -> dict:
        facts = read_json(record, "the record of a shard", _AGAIN)
        if facts.get("sha256") != source:
            raise BadInput(f"{path}: its text has changed since {record} was written; {_AGAIN}")
        for name, now in self._column(path).items():
            if facts.get(name, now) != now:
                raise BadInput(
                    f"{path}: its vectors are of column '{facts[name]}', not '{now}'; choose another --output"
                )
        return facts

    def _damage(self, facts: dict, outputs: list[Path]) -> str | None:
        """What is wrong with the outputs of a finished shard; older records list no sha256, only a shape."""
        listed = facts.get("files")
        for output in outputs if isinstance(listed, dict) else ():
            if listed.get(output.name) != sha256(output):
                return f"{output.name} has changed since it was written"
        expected = self.dtype, facts.get("rows"), facts.get("width")
        try:
            found = shape_of(outputs[0])
        except BadInput as error:
            return str(error)
        return None if found == expected else f"{outputs[0].name} holds {found}, its record says {expected}"

    def _column(self, path: Path) -> dict[str, str]:
        return {"column": self.column} if is_parquet(path) else {}


def _digest(path: Path) -> str:
    with open_regular(path) as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
