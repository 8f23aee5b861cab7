"""Read text files for evaluation."""

from pathlib import Path

from common.errors import BadInput
from common.files import open_regular

DOWNSTREAM = Path("senteval") / "downstream"  # SentEval's layout below --data_dir


def read_lines(path: Path, encoding: str = "utf-8-sig") -> list[str]:
    """The lines of a file; BadInput if it cannot be read or decoded.

    Only a line feed ends a line, so that the lines of two files stay aligned.
    """
    advice = ""
    if DOWNSTREAM.as_posix() in path.as_posix():
        advice = "; `python -m data.prepare` downloads published sets"
    try:
        with open_regular(path) as file:
            text = file.read().decode(encoding)
    except UnicodeDecodeError as error:
        raise BadInput(f"{path}: cannot be read ({error}){advice}") from error
    except BadInput as error:
        raise BadInput(f"{error}{advice}") from error
    lines = text.replace("\r\n", "\n").split("\n")
    return lines[:-1] if lines[-1] == "" else lines


def tidy(sentence: str) -> str:
    """Normalise white space to single spaces, as SentEval does."""
    return " ".join(sentence.split())
