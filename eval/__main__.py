"""`python -m eval MODEL [MODEL ...] --tasks sts`: score any encoder in the papers' protocol."""

from __future__ import annotations

import argparse
import logging
import time
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from common.errors import BadInput, run_command
from common.flags import Parser, add_encoder, check_output
from common.labels import labelled
from common.model_place import check_place
from common.streams import show
from eval.scores import Key, details, items_path, refuse_foreign, row, rows_of, tables, write_scores

if TYPE_CHECKING:  # torch is imported inside the functions, so that flags are checked first
    from eval.encode import Encode
    from eval.scores import Result
    from eval.tasks import Options, Task

logger = logging.getLogger(__name__)
_READERS = {  # flags that only some tasks read
    "embeddings": "a search task: beir, nanobeir or one of its sets",
    "directions": "the task retrieval",
    "duplicates": "the task retrieval",
    "mode": "a transfer task",
}


def parser() -> Parser:
    from eval.tasks import GROUPS
    from eval.transfer.validation import MODES

    p = Parser(
        prog="python -m eval",
        description="Score sentence encoders: STS (Spearman x 100), transfer (accuracy), retrieval (nDCG, recall).",
        epilog="examples:\n"
        "  python -m eval runs/infocse --tasks sts --output runs/infocse/scores.json\n"
        "  python -m eval runs/infocse --tasks transfer --mode fasttest\n"
        "  python -m eval runs/simcse runs/infocse --tasks retrieval --output runs/scores\n"
        "  python -m eval bert-base-uncased --pooling cls_before_pooler --tasks STS-B --split dev\n"
        "  python -m eval runs/infocse --dev_file my_pairs.tsv\n"
        "  python -m eval runs/infocse --tasks beir --beir scifact nano --max_length 512 --embeddings runs/vectors",
    )
    p.add_argument("models", nargs="+", metavar="[NAME=]MODEL", help="run or export folder, Hugging Face encoder or "
                   "sentence-transformers model; several give one table")  # fmt: skip
    p.add_argument("--tasks", nargs="+", default=[], metavar="TASK", help=f"{', '.join(GROUPS)} or task names")
    p.add_argument("--dev_file", help="your own pairs: tab-separated, header sentence1, sentence2, score (0 to 5)")
    p.add_argument("--split", choices=["test", "dev"], help="STS and BEIR: default test, or dev with --mode dev")
    p.add_argument("--mode", choices=[*MODES], default="test",
                   help="transfer: test as in the papers (10 folds); fasttest and, for dev scores, dev (5 folds, "
                   "rmsprop)")  # fmt: skip
    add_encoder(p)
    p.add_argument("--beir", nargs="+", default=[], metavar="NAME",
                   help="sets for --tasks beir: folders in DATA_DIR/beir, paper14, nano")  # fmt: skip
    p.add_argument("--embeddings", metavar="DIR", help="keep the document vectors of search tasks here (several "
                   "models: in DIR/NAME), so that a stopped command resumes")  # fmt: skip
    p.add_argument(
        "--directions",
        choices=["one", "both"],
        default="one",
        help="--tasks retrieval: 97 or 194 queries",
    )
    p.add_argument("--duplicates", choices=["own", "identical"], default="own",
                   help="--tasks retrieval: exclude the query's row only, or all rows with its string")  # fmt: skip
    p.add_argument("--data_dir", default="corpora", help="folder with senteval/downstream and beir")
    p.add_argument("--details", action="store_true", help="print every row: subsets, means, Pearson, counts")
    p.add_argument("--output", help="write all rows to this JSON file, and the scores of each example next to it; "
                   "several models write DIR/NAME.json, with / in NAME replaced by -")  # fmt: skip
    return p


def options_of(args: argparse.Namespace, name: str) -> Options:
    """The task options of one model."""
    from eval.encode import device_here
    from eval.tasks import Options

    split = args.split or ("dev" if args.mode == "dev" else "test")
    return Options(split, args.mode, tuple(args.beir), _path_of(args, args.embeddings, name), args.directions,
                   args.duplicates, device_here(), progress=True)  # fmt: skip


def _path_of(args: argparse.Namespace, path: str | None, name: str) -> str | None:
    """The path for one model: `path` itself, or PATH/NAME if there are several models."""
    return str(Path(path) / name.replace("/", "-")) if path and len(args.models) > 1 else path


def tasks_of(args: argparse.Namespace, options: Options) -> list[Task]:
    from eval.sts import own_pairs
    from eval.tasks import tasks_named

    tasks = tasks_named(args.tasks or ([] if args.dev_file else ["sts"]), options)
    return [*tasks, *([own_pairs(args.dev_file)] if args.dev_file else [])]


def unknown_tokens(encode: Encode, options: Options) -> dict:
    """Log the percentage of encoded tokens that are unknown; return it as a row that is never a headline."""
    share = 100 * encode.unknown / encode.tokens
    logger.info("%d of %d encoded tokens (%.2f %%) are unknown to the tokenizer", encode.unknown, encode.tokens, share)
    unknown = row("tokenizer", options.split, "unknown tokens", "share", encode.tokens, share, options.mode)
    return unknown | {"headline": False}


def score_model(args: argparse.Namespace, name: str, model: str) -> tuple[dict[Any, Result], list[dict]]:
    """Score one model; return the results by task, and all rows."""
    from eval.encode import Encode
    from eval.tasks import score_all
    from models.encoder import load_encoder

    options = options_of(args, name)
    encoder, tokenizer = load_encoder(model, args.pooling, args.max_length)
    encoder.to(options.device)
    logger.info("%s: pooling %s, at most %d tokens", model, encoder.pooling, encoder.max_length)
    start = time.perf_counter()
    encode = Encode(encoder, tokenizer, bf16=args.bf16, progress=options.progress)
    results = score_all(encode, tasks_of(args, options), args.data_dir)
    rows = rows_of(results, name, None, **encode.settings)
    if encode.unknown:
        rows.append(unknown_tokens(encode, options) | {"model": name, "run": None, **encode.settings})
    logger.info("scored in %.1f s", time.perf_counter() - start)
    return results, rows


def _check(model: str, pooling: str | None) -> None:
    """Raise BadInput if configuration, pooling, head or tokenizer cannot be read; weights are not loaded."""
    from models.encoder import described
    from models.loading import load_config, load_tokenizer

    described(model, load_config(model), pooling)
    load_tokenizer(model)


def outputs_of(args: argparse.Namespace, models: Mapping[str, str]) -> dict[str, str | None]:
    """The scores file of each model; BadInput if one cannot be written, or two models would share one."""
    suffix = ".json" if len(args.models) > 1 else ""
    if suffix and args.output and Path(args.output).is_file():
        raise BadInput(f"--output {args.output} is a file; several models need a folder")
    files = [_path_of(args, "models", name) for name in models] if suffix else []
    if twice := next((path for path in files if files.count(path) > 1), None):
        raise BadInput(f"two models would write to {Path(twice).name}; name them: NAME=MODEL")
    outputs = {name: _path_of(args, args.output, f"{name}{suffix}") for name in models}
    for output in outputs.values():
        check_output(output, [args.dev_file], b"[")
        check_output(output and str(items_path(output)), [args.dev_file], b"pk")
        refuse_foreign(output, *Key._fields, "n", "value")
    return outputs


def check_tasks(args: argparse.Namespace) -> None:
    """Read the tasks' data; BadInput for a missing file, or for flags that have no effect on the tasks."""
    from eval.transfer.tasks import TransferTask  # imports torch

    tasks = tasks_of(args, options_of(args, ""))
    if args.split == "dev" and args.mode != "dev" and any(isinstance(task, TransferTask) for task in tasks):
        raise BadInput("--split dev: transfer tasks have dev scores with --mode dev; add it, or leave --split out")
    if args.split == "test" and args.mode == "dev":
        raise BadInput("--split test --mode dev: they name different splits; give one of them")
    if args.dev_file and not args.tasks and (args.split or args.mode != "test"):
        raise BadInput("--split and --mode: your own pairs have neither; leave them out")
    used = {"embeddings": args.embeddings, "directions": args.directions == "both", "mode": args.mode == "fasttest",
            "duplicates": args.duplicates == "identical"}  # fmt: skip
    for name in (name for name, given in used.items() if given):
        if not any(hasattr(task, name) for task in tasks):
            raise BadInput(f"--{name} needs {_READERS[name]}; add it to --tasks")
    for task in tasks[1:]:
        task.load(args.data_dir)  # fail on a missing file now, not after the first task is scored


def main(argv: list[str] | None = None) -> list[dict]:
    """Run the command and return the rows it printed."""
    args = parser().parse_args(argv)
    if args.beir and "beir" not in map(str.lower, args.tasks):
        raise BadInput("--beir needs --tasks beir; add it")
    models = labelled(args.models)
    outputs = outputs_of(args, models)
    for model in models.values():
        check_place(model)
    check_tasks(args)
    for model in models.values() if len(models) > 1 else ():
        _check(model, args.pooling)  # fail on a bad model now, not after the first model is scored
    rows: dict[str, list[dict]] = {}
    try:
        for name, model in models.items():
            results, rows[name] = score_model(args, name, model)
            if outputs[name]:
                write_scores(outputs[name], results, rows[name])
    finally:  # also if a file cannot be written, or a later model fails
        all_rows = [one for model_rows in rows.values() for one in model_rows]
        if all_rows:
            show(details(all_rows) if args.details else tables(rows), args.output)
    return all_rows


if __name__ == "__main__":
    run_command(main)
