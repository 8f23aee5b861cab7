"""Read text files for evaluation."""

import gzip
import zlib
from pathlib import Path

from common.errors import BadInput
from common.files import refuse_special
from eval.crosslingual import SETS

DOWNSTREAM = Path("senteval") / "downstream"  # SentEval's layout below --data_dir
_SOURCES = {  # the first part that a path contains -> the name for `data.prepare`
    f"{DOWNSTREAM.as_posix()}/STS": "sts",
    f"{DOWNSTREAM.as_posix()}/SICK": "sts",
    DOWNSTREAM.as_posix(): "transfer",
    **{data_set.repo: data_set.name.lower() for data_set in SETS},
}


def read_lines(path: Path, encoding: str = "utf-8-sig") -> list[str]:
    """The lines of a file, plain or .gz; only a line feed ends a line, so that lines of two files stay aligned.

    Raises:
        BadInput: with the line, if the file cannot be read or decoded.
    """
    try:
        refuse_special(path)
        content = path.read_bytes()
        text = (gzip.decompress(content) if path.suffix == ".gz" else content).decode(encoding)
    except UnicodeDecodeError as error:
        line = error.object[: error.start].count(b"\n") + 1
        raise BadInput(f"{path}:{line}: not UTF-8 (byte {error.start}); is it compressed?") from error
    except (OSError, EOFError, zlib.error) as error:
        names = [name for part, name in _SOURCES.items() if part in path.as_posix()]
        remedy = f"`python -m data.prepare {names[0]}` downloads it" if names else "check its path and permissions"
        raise BadInput(f"{path}: cannot be read ({getattr(error, 'strerror', None) or error}); {remedy}") from error
    lines = text.replace("\r\n", "\n").split("\n")
    return lines[:-1] if lines[-1] == "" else lines


def tidy(sentence: str) -> str:
    """Normalise white space to single spaces, as SentEval does."""
    return " ".join(sentence.split())
