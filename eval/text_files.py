"""Read text files for evaluation."""

import gzip
import zlib
from pathlib import Path

from common.errors import BadInput
from common.files import refuse_special

DOWNSTREAM = Path("senteval") / "downstream"  # SentEval's layout below --data_dir


def read_lines(path: Path, encoding: str = "utf-8-sig") -> list[str]:
    """The lines of a file, plain or .gz.

    Only a line feed ends a line, so that the lines of two files stay aligned.

    Raises:
        BadInput: the file cannot be read or decoded.
    """
    try:
        refuse_special(path)
        content = path.read_bytes()
        text = (gzip.decompress(content) if path.suffix == ".gz" else content).decode(encoding)
    except (OSError, EOFError, zlib.error, UnicodeDecodeError) as error:
        reason = getattr(error, "strerror", None) or error
        raise BadInput(
            f"{path}: cannot be read ({reason}); `python -m data.prepare` downloads published sets"
        ) from error
    lines = text.replace("\r\n", "\n").split("\n")
    return lines[:-1] if lines[-1] == "" else lines


def tidy(sentence: str) -> str:
    """Normalise white space to single spaces, as SentEval does."""
    return " ".join(sentence.split())
