"""The command `python -m adapt`, and its Python function."""

from __future__ import annotations

import argparse
import difflib
import sys
from collections.abc import Iterable
from io import BytesIO
from os import PathLike, fspath
from pathlib import Path
from typing import Any

from adapt import CONFIG
from common.command_line import read_config, split_flag
from common.errors import BadInput
from common.files import digest, read_json
from common.flags import Parser, positive, refuse_repeated, underscored
from common.model_place import check_place
from common.ranges import Seed, check_range
from common.streams import show
from training.finished import finished, inputs_of
from training.flags import check_sentence_command, declared
from training.python_arguments import as_flags, joined, keep
from training.record import RUN_FILE, read_run

DESCRIPTION = """Adapt a model to search in your own documents.

Some documents are held out and turned into pseudo-queries, the model is trained on the rest, and its weights may be
averaged with the start's. Half of the pseudo-queries choose the weights, the other half compare them with the start.
DIR is an ordinary run. It contains the unchanged start unless the gain is clear (--least_gain). DIR/adapt.json has the
verdict.
"""
_OWN = {"train_file", "dataset_name", "columns", "model_name_or_path", "output_dir", "dev", "dev_file", "dev_beir"}


def parser() -> Parser:
    """The command line of `python -m adapt`."""
    p = Parser(
        prog="python -m adapt",
        description=DESCRIPTION,
        epilog="Other flags are those of run_unsup.py (python run_unsup.py --method spans --help_all), such as\n"
        "--dry_run, --pooling avg, --learning_rate 1e-5 or --method tsdae. configs/adapt.yaml has their defaults.\n\n"
        "example:\n  python -m adapt sentence-transformers/all-MiniLM-L6-v2 --text corpus.jsonl --output runs/mine",
    )
    p.add_argument("model", metavar="MODEL", help="start model: an encoder, a run, or a hub id")
    p.add_argument("--text", nargs="+", required=True, metavar="FILE", help="documents: files or folders with one "
                   "document per line, or tables with a column `text` and optionally `title`, such as BEIR's "
                   "corpus.jsonl")  # fmt: skip
    p.add_argument("--text_column", help="text column of tables (default: text)")
    p.add_argument("--title_column", help="title column of tables (default: title, if there is one)")
    p.add_argument("--output", required=True, metavar="DIR", help="the run folder; the same command resumes")
    p.add_argument("--labels", metavar="FOLDER", help="BEIR set with real queries, only scored at the end")
    p.add_argument("--steps", type=positive, help=f"training steps (default: {read_config(str(CONFIG))['max_steps']})")
    p.add_argument("--seed", type=int, default=42, help="seed of the held-out documents and of training")
    p.add_argument("--cache_dir", default="corpora/cache", help="folder for the prepared text")
    return p


def main(argv: list[str] | None = None) -> dict[str, Any]:
    """Hold out, train, mix, judge, write; returns the content of adapt.json."""
    args, words, inputs = checked(argv)
    if verdict := finished_before(args.output, inputs):
        show(verdict["said"], args.output)
        return verdict
    from adapt.run import run  # here: it imports torch; flags are checked first

    return run(args, words, inputs)


def finished_before(output: str, inputs: str | None) -> dict[str, Any] | None:
    """The content of adapt.json if this command has finished and its inputs and outputs are unchanged."""
    file = Path(output) / "adapt.json"
    if inputs is None or not file.is_file() or not (Path(output) / RUN_FILE).is_file():
        return None
    verdict, run = read_json(file, "the verdict of adapt"), read_run(Path(output))
    same = verdict.get("inputs") == inputs and finished(output, run.get("inputs"))
    return verdict if same and run["run_id"] == verdict["run_id"] else None


def checked(argv: list[str] | None) -> tuple[argparse.Namespace, list[str], str | None]:
    """Flags of adapt, those for run_unsup.py with a default `--config`, and a hash of all inputs.

    Raises:
        BadInput: a wrong flag, or the model does not exist.
    """
    argv = sys.argv[1:] if argv is None else argv
    refuse_repeated(argv)
    file, _ = split_flag(argv, "config")
    config = read_config(file) if file else {}
    flags = parser()
    flags.set_defaults(**{name: config[name] for name in ("seed", "cache_dir") if name in config})
    args, training_flags = flags.parse_known_args(argv)
    _refuse_misplaced(args, argv, training_flags)
    if excluded := {"dev_file", "dataset_name"} & config.keys():
        raise BadInput(f"{file}: '{min(excluded)}' excludes what adapt sets itself; use a copy without it")
    if not file:
        training_flags.append(f"--config={CONFIG}")
    ours = [f"--model_name_or_path={args.model}", f"--output_dir={args.output}"]  # not those of the configuration
    training_inputs = check_sentence_command([*training_flags, *ours], DESCRIPTION, labels=False).inputs
    check_place(args.model)
    settings = vars(args) | {"output": None, "output_dir": args.output}  # the name that marks it as an output
    own_inputs = inputs_of(as_flags(None, settings), {})
    inputs = digest([training_inputs, own_inputs]) if training_inputs and own_inputs else None
    return args, training_flags, inputs


def _refuse_misplaced(args: argparse.Namespace, argv: list[str], training_flags: list[str]) -> None:
    """Refuse a wrong seed, and flags for run_unsup.py that adapt sets itself or that are misspelt ones of adapt."""
    check_range("seed", args.seed, Seed)
    before = underscored(argv)[argv.index(args.model) - 1] if args.model in argv[1:] else ""
    if before.startswith("--") and before in training_flags:
        raise BadInput(f"{before} {args.model}: MODEL comes first: python -m adapt MODEL --text ...")
    names = [word[2:].split("=")[0] for word in training_flags if word.startswith("--")]
    if args.steps and "max_steps" in names:
        raise BadInput("--steps and --max_steps mean the same; give one")
    if reserved := _OWN & {*names}:
        raise BadInput(f"--{min(reserved)}: set by adapt itself; use python run_unsup.py to choose it")
    known = declared("ModelArguments", "SentenceArguments")
    for name in names:
        near = difflib.get_close_matches(name, vars(args), n=1, cutoff=0.75)
        if near and name not in known:
            raise BadInput(f"unknown argument '--{name}'; did you mean '--{near[0]}'?")


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
    named = joined({"output": output_dir}, settings)
    if hasattr(text, "to_parquet"):  # the command reads its columns
        content = BytesIO()
        text.to_parquet(content)
        cache = Path(named.get("cache_dir") or parser().get_default("cache_dir"))
        text = keep(content.getvalue(), cache / "documents.parquet")
    words = as_flags(text, named)
    if "columns" not in named and any(word.startswith("--columns=") for word in words):
        raise BadInput("documents of several parts: give each as one text or, with titles, a Dataset with the columns "
                       "title and text")  # fmt: skip
    return main([fspath(model), *(word.replace("--train_file=", "--text=", 1) for word in words)])
