"""The command `python -m adapt`, and the same from Python."""

from __future__ import annotations

import argparse
from collections.abc import Iterable
from os import PathLike, fspath
from pathlib import Path
from typing import Any

from common.errors import BadInput
from common.files import digest, read_json
from common.flags import Parser, positive
from common.model_place import check_place
from common.streams import show
from training.finished import finished, inputs_of
from training.flags import check_sentence_command
from training.python_arguments import as_flags
from training.record import RUN_FILE, read_run

DESCRIPTION = """Better search in your own documents, or the start as it was.

Some documents are held out and turned into pseudo-queries. The model is trained on the others; its weights are mixed
with the start's; half of the pseudo-queries choose the mixture, the other half judge it. DIR is a run like any other:
where the result is not better beyond chance it holds the start. DIR/adapt.json has the verdict.
"""
_OWN = {"train_file", "dataset_name", "columns", "model_name_or_path", "output_dir", "dev", "dev_file", "dev_beir"}
CONFIG = Path(__file__).parents[1] / "configs" / "adapt.yaml"


def parser() -> Parser:
    """The command line of `python -m adapt`."""
    p = Parser(
        prog="python -m adapt",
        formatter_class=argparse.RawDescriptionHelpFormatter,
        description=DESCRIPTION,
        epilog="Every other flag goes to run_unsup.py and wins over configs/adapt.yaml, such as --learning_rate 1e-5, "
        "--method tsdae or\n--per_device_train_batch_size 32.\n\n"
        "example:\n  python -m adapt sentence-transformers/all-MiniLM-L6-v2 --text docs/ --output runs/my-search",
    )
    p.add_argument("model", metavar="MODEL", help="where to start: an encoder, a run, or a hub id")
    p.add_argument("--text", nargs="+", required=True, metavar="FILE", help="documents: files or folders, one document "
                   "a line, or tables with a column `text` and perhaps `title`, as BEIR's corpus.jsonl")  # fmt: skip
    p.add_argument("--text_column", help="of tables (default: text)")
    p.add_argument("--title_column", default="title", help="of tables that have one (default: title)")
    p.add_argument("--output", required=True, metavar="DIR", help="the run; the same command resumes it")
    p.add_argument(
        "--labels", metavar="FOLDER", help="a BEIR set with real queries, scored at the end; chooses nothing"
    )
    p.add_argument("--steps", type=positive, help="of training (default: configs/adapt.yaml)")
    p.add_argument("--seed", type=int, default=42, help="of the held-out documents and of the training")
    p.add_argument("--cache_dir", default="corpora/cache", help="where the prepared text goes")
    return p


def main(argv: list[str] | None = None) -> dict[str, Any]:
    """Hold out, train, mix, judge, write; returns what adapt.json holds."""
    args, *words, inputs = checked(argv)
    if found := finished_before(args.output, inputs):
        show(found["said"], args.output)
        return found
    from adapt.run import run  # here: it imports torch, and the flags are looked over first

    return run(args, *words, inputs)


def finished_before(output: str, inputs: str | None) -> dict[str, Any] | None:
    """What adapt.json holds, where this command has finished and nothing that it reads or wrote has changed."""
    place = Path(output) / "adapt.json"
    if inputs is None or not place.is_file() or not (Path(output) / RUN_FILE).is_file():
        return None
    found, run = read_json(place, "the verdict of adapt"), read_run(Path(output))
    same = found.get("inputs") == inputs and finished(output, run.get("inputs")) and run["run_id"] == found["run_id"]
    return found if same else None


def checked(argv: list[str] | None = None) -> tuple[argparse.Namespace, list[str], list[str], str | None]:
    """Flags of adapt, `--config FILE` unless it is given, flags for run_unsup.py, and a hash of all that is read.

    Raises:
        BadInput: a wrong flag, or no model of that name.
    """
    args, others = parser().parse_known_args(argv)
    if args.seed < 0:
        raise BadInput(f"--seed {args.seed}: must be 0 or more")
    if taken := _OWN & {word[2:].split("=")[0] for word in others if word.startswith("--")}:
        raise BadInput(f"--{min(taken)}: adapt gives it itself; python run_unsup.py takes it")
    config = [] if any(word.split("=")[0] == "--config" for word in others) else [f"--config={CONFIG}"]
    known = check_sentence_command([*config, *others], DESCRIPTION, labels=False).inputs
    check_place(args.model)
    settings = vars(args) | {"output": None, "output_dir": args.output}  # by the name of a folder that is written
    own = inputs_of(as_flags(None, settings), {})
    return args, config, others, digest([known, own]) if known and own else None


def adapt(
    text: str | PathLike | Iterable[str], model: str | PathLike, output_dir: str | PathLike, **settings: Any
) -> dict[str, Any]:
    """What the command does, from Python.

    Args:
        text: documents, or the path of a file or folder.
        model: where to start.
        output_dir: the run's folder.
        settings: every flag of `python -m adapt` and of run_unsup.py by its name.

    Returns:
        What adapt.json holds.

    Raises:
        ProjectError: what the command would print as one line.
    """
    named = {"output": output_dir, **settings}
    words = as_flags(text, named)
    return main([fspath(model), *(word.replace("--train_file=", "--text=", 1) for word in words)])
