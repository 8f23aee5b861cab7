"""`python -m adapt MODEL --text FILE ... --output DIR`: the best search in your own documents."""

from __future__ import annotations

import argparse
import os
import sys
from pathlib import Path
from typing import Any

from common.errors import BadInput, run_command

# isort: split

from adapt import CONFIG
from adapt.run import run
from common.flags import Parser, add_columns, add_pooling, positive, refuse_repeated
from common.folders import locked
from common.ranges import Seed, check_range
from eval.retrieval.lexical import LANGUAGES
from training.config_files import read_config
from training.methods import UNSUP
from training.settings import fill, flags_of

DESCRIPTION = """Find the best search in your own documents for a model.

Queries are made from some of the documents. They compare the model as it is, BM25, both, and the
model behind a linear layer that is fitted to the documents, alone and with BM25; with --train also
the model after training on the other documents. A search must be better than every cheaper one by
the 95 % interval of its gain. DIR gets the model with its layer, and search.json: how `python -m
search` and `Embedder` search with it. It gets the model as it is unless another search is better.
DIR/adapt.json has all figures.
"""
_SET_HERE = {"train_file", "columns", "model_name_or_path", "output_dir", "dev", "dev_beir"}


def parser() -> Parser:
    """The command line of `python -m adapt`."""
    p = Parser(
        prog="python -m adapt",
        description=DESCRIPTION,
        epilog="Other flags are those of the training by run_unsup.py (python run_unsup.py "
        "--method cropping\n--help_all), such as --dry_run, --learning_rate 1e-5 or "
        "--method tsdae.\n"
        "configs/adapt.yaml has their defaults. --use_cpu is for the training alone; searches are "
        "compared on a GPU\n"
        "if there is one.\n\n"
        "example:\n  python -m adapt sentence-transformers/all-MiniLM-L6-v2 --text MY_FOLDER "
        "--output runs/mine",
    )
    p.add_argument(
        "model", metavar="MODEL", help="an embedding model, a run, a plain encoder, or a hub id"
    )
    text = "files or folders, as for `python -m search build`"
    p.add_argument("--text", nargs="+", required=True, metavar="DOCUMENTS", help=text)
    p.add_argument("--output", required=True, metavar="DIR", help="a new folder")
    p.add_argument(
        "--labels",
        metavar="FOLDER",
        help="set of real queries in BEIR's format, only scored at the end",
    )
    p.add_argument(
        "--train", action="store_true", help="train, in DIR-training; always on for a plain encoder"
    )
    p.add_argument(
        "--steps",
        type=positive,
        help=f"training steps (default: {read_config(str(CONFIG))['max_steps']})",
    )
    add_columns(p)
    add_pooling(p)
    p.add_argument(
        "--language",
        choices=LANGUAGES,
        default="english",
        help="stemmer and stop words of BM25",
    )
    p.add_argument("--seed", type=int, default=42, help="seed of the queries and of training")
    p.add_argument("--cache_dir", default="corpora/cache", help="folder for the prepared text")
    return p


def main(argv: list[str] | None = None) -> dict[str, Any]:
    """Compare the searches, write the best one; returns the content of adapt.json."""
    args, given = checked(argv)
    if int(os.environ.get("RANK", "0")):  # a process beside the main one
        return run(args, given)
    with locked(Path(args.output)):  # from here on another command is refused
        return run(args, given)


def checked(argv: list[str] | None) -> tuple[argparse.Namespace, dict[str, Any]]:
    """Flags of adapt, and those for run_unsup.py by name, among them a configuration.

    Raises:
        BadInput: a wrong flag.
    """
    argv = sys.argv[1:] if argv is None else argv
    refuse_repeated(argv)
    flags = parser()
    _, words = flags.parse_known_args(argv)
    if not any(word.split("=")[0] == "--config" for word in words):
        words = ["--config", str(CONFIG), *words]
    given = flags_of(UNSUP, words)
    config = read_config(*given["config"])
    flags.set_defaults(**{name: config[name] for name in ("seed", "cache_dir") if name in config})
    args, _ = flags.parse_known_args(argv)
    check_range("--seed", args.seed, Seed)
    if reserved := _SET_HERE & given.keys():
        raise BadInput(f"--{min(reserved)}: adapt sets it; use python run_unsup.py to choose it")
    fill(
        UNSUP, given | {"model_name_or_path": args.model, "output_dir": args.output}
    )  # before the slow preparation
    return args, given


if __name__ == "__main__":
    run_command(main)
