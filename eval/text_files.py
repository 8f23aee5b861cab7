"""Reading text files for evaluation line by line."""

import gzip
import zlib
from pathlib import Path

from common.errors import BadInput
from common.files import refuse_special

DOWNSTREAM = Path("senteval") / "downstream"  # SentEval's layout below --data_dir


def read_lines(path: Path, encoding: str = "utf-8-sig") -> list[str]:
    """The lines of a file, plain or .gz; only a line feed ends a line, so that lines of two files stay aligned.

    Raises:
        BadInput: with the line: the file cannot be read, or is not in this encoding.
    """
    try:
        refuse_special(path)
        content = path.read_bytes()
        content = gzip.decompress(content) if path.suffix == ".gz" else content
    except (EOFError, zlib.error, gzip.BadGzipFile) as error:
        raise BadInput(f"{path}: is not a whole .gz file ({error}); copy it again") from error
    except OSError as error:
        raise BadInput(
            f"{path}: cannot be read ({error.strerror}); test sets come by `python -m data.prepare`"
        ) from error
    try:
        text = content.decode(encoding)
    except UnicodeDecodeError as error:
        line = content[: error.start].count(b"\n") + 1
        packed = "; it is compressed, unpack it first" if content.startswith(b"\x1f\x8b") else ""
        raise BadInput(f"{path}:{line}: not UTF-8 (byte {error.start}){packed}") from error
    lines = text.replace("\r\n", "\n").split("\n")
    return lines[:-1] if lines[-1] == "" else lines


def tidy(sentence: str) -> str:
    """A sentence split at white space and joined by single spaces, as SentEval does."""
    return " ".join(sentence.split())
