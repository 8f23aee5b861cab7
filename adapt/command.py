"""The command `python -m adapt`, and its Python function."""

from __future__ import annotations

import argparse
from collections.abc import Iterable
from os import PathLike, fspath
from pathlib import Path
from typing import Any

from common.command_line import read_config, split_flag
from common.errors import BadInput
from common.files import digest, read_json
from common.flags import Parser, positive
from common.model_place import check_place
from common.streams import show
from training.finished import finished, inputs_of
from training.flags import check_sentence_command
from training.python_arguments import as_flags, write_text
from training.record import RUN_FILE, read_run

DESCRIPTION = """Adapt a model to search in your own documents.

Some documents are held out and turned into pseudo-queries, the model is trained on the rest, and its weights may be
averaged with the start's. Half of the pseudo-queries choose the weights, the other half compare them with the start.
DIR is an ordinary run; it contains the unchanged start unless the result is clearly better (--least_gain of
run_unsup.py).
DIR/adapt.json has the verdict.
"""
_OWN = {"train_file", "dataset_name", "columns", "model_name_or_path", "output_dir", "dev", "dev_file", "dev_beir"}
_TITLED = ("title", "text")  # the header of documents with titles
CONFIG = Path(__file__).parents[1] / "configs" / "adapt.yaml"


def parser() -> Parser:
    """The command line of `python -m adapt`."""
    p = Parser(
        prog="python -m adapt",
        formatter_class=argparse.RawDescriptionHelpFormatter,
        description=DESCRIPTION,
        epilog="Other flags are passed to run_unsup.py and override configs/adapt.yaml, such as --learning_rate 1e-5, "
        "--method tsdae or\n--per_device_train_batch_size 32.\n\n"
        "example:\n  python -m adapt sentence-transformers/all-MiniLM-L6-v2 --text docs/ --output runs/my-search",
    )
    p.add_argument("model", metavar="MODEL", help="start model: an encoder, a run, or a hub id")
    p.add_argument("--text", nargs="+", required=True, metavar="FILE", help="documents: files or folders with one "
                   "document per line, or tables with a column `text` and optionally `title`, such as BEIR's "
                   "corpus.jsonl")  # fmt: skip
    p.add_argument("--text_column", help="text column of tables (default: text)")
    p.add_argument("--title_column", help="title column of tables (default: title, if there is one)")
    p.add_argument("--output", required=True, metavar="DIR", help="the run folder; the same command resumes")
    p.add_argument("--labels", metavar="FOLDER", help="BEIR set with real queries, only scored at the end")
    p.add_argument("--steps", type=positive, help="training steps (default: configs/adapt.yaml)")
    p.add_argument("--seed", type=int, default=42, help="of the held-out documents and of training (default: 42)")
    p.add_argument("--cache_dir", default="corpora/cache", help="folder for the prepared text (default: corpora/cache)")
    return p


def main(argv: list[str] | None = None) -> dict[str, Any]:
    """Hold out, train, mix, judge, write; returns the content of adapt.json."""
    args, *words, inputs = checked(argv)
    if verdict := finished_before(args.output, inputs):
        show(verdict["said"], args.output)
        return verdict
    from adapt.run import run  # here: it imports torch; flags are checked first

    return run(args, *words, inputs)


def finished_before(output: str, inputs: str | None) -> dict[str, Any] | None:
    """The content of adapt.json if this command has finished and its inputs and outputs are unchanged."""
    file = Path(output) / "adapt.json"
    if inputs is None or not file.is_file() or not (Path(output) / RUN_FILE).is_file():
        return None
    verdict, run = read_json(file, "the verdict of adapt"), read_run(Path(output))
    same = verdict.get("inputs") == inputs and finished(output, run.get("inputs"))
    return verdict if same and run["run_id"] == verdict["run_id"] else None


def checked(argv: list[str] | None = None) -> tuple[argparse.Namespace, list[str], list[str], str | None]:
    """Flags of adapt, the default `--config FILE` if needed, flags for run_unsup.py, and a hash of all inputs.

    Raises:
        BadInput: a wrong flag, or the model does not exist.
    """
    args, training_flags = parser().parse_known_args(argv)
    if args.seed < 0:
        raise BadInput(f"--seed {args.seed}: must be 0 or more")
    if reserved := _OWN & {word[2:].split("=")[0] for word in training_flags if word.startswith("--")}:
        raise BadInput(f"--{min(reserved)}: set by adapt itself; use python run_unsup.py to choose it")
    file, _ = split_flag(training_flags, "config")
    if excluded := {"dev_file", "dataset_name"} & (read_config(file).keys() if file else set()):
        raise BadInput(f"{file}: '{min(excluded)}' excludes what adapt sets itself; use a copy without it")
    config = [] if file else [f"--config={CONFIG}"]
    training_inputs = check_sentence_command([*config, *training_flags], DESCRIPTION, labels=False).inputs
    check_place(args.model)
    settings = vars(args) | {"output": None, "output_dir": args.output}  # the name that marks it as an output
    own_inputs = inputs_of(as_flags(None, settings), {})
    inputs = digest([training_inputs, own_inputs]) if training_inputs and own_inputs else None
    return args, config, training_flags, inputs


def adapt(
    text: str | PathLike | Iterable[str], model: str | PathLike, output_dir: str | PathLike, **settings: Any
) -> dict[str, Any]:
    """The command as a function.

    Args:
        text: documents; a `datasets.Dataset` with a column `text` and optionally `title`; or the path of a file or
            folder.
        model: the model to start from.
        output_dir: the run's folder.
        settings: any flag of `python -m adapt` and of run_unsup.py by name.

    Returns:
        The content of adapt.json.

    Raises:
        ProjectError: any error that the command would print as one line.
    """
    named = {"output": output_dir, **settings}
    if columns := _titled(text, named):
        rows = zip(*(text[name] for name in columns), strict=True)
        cache = Path(named.get("cache_dir") or parser().get_default("cache_dir"))
        text, _ = write_text((tuple(cell or "" for cell in row) for row in rows if any(row)), cache, _TITLED)
        named |= dict(zip(("title_column", "text_column"), _TITLED, strict=True))
    words = as_flags(text, named)
    if "columns" not in named and any(word.startswith("--columns=") for word in words):
        raise BadInput("documents of several parts: give each as one text or, with titles, a Dataset with the columns "
                       "title and text")  # fmt: skip
    return main([fspath(model), *(word.replace("--train_file=", "--text=", 1) for word in words)])


def _titled(text: Any, settings: dict[str, Any]) -> tuple[str, str] | None:
    """The columns of a Dataset with titles and texts; None if `as_flags` reads the text as it is."""
    names = getattr(text, "column_names", None) or ()
    title, body = settings.get("title_column"), settings.get("text_column") or "text"
    if title and names and title not in names:
        raise BadInput(f"title_column: no column '{title}' among {', '.join(names)}")
    columns = title or "title", body[0] if isinstance(body, (list, tuple)) and len(body) == 1 else body
    return columns if {*columns} <= {*names} and columns[0] != columns[1] and hasattr(text, "__len__") else None
