"""`python -m eval MODEL [MODEL ...] --tasks sts`: score any encoder in the papers' protocol."""

from __future__ import annotations

import argparse
import json
import logging
import time
from collections.abc import Mapping
from itertools import combinations
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any, NamedTuple

from common.errors import BadInput, run_command
from common.flags import Parser, add_encoder, add_prompts, check_output
from common.streams import show
from eval.labels import labelled
from eval.scores import Key, details, items_path, markdown, refuse_foreign, row, rows_of, tables, write_scores

if TYPE_CHECKING:  # torch is imported inside the functions, so that flags are checked first
    from eval.encode import Encode
    from eval.scores import Result
    from eval.tasks import Options, Task

logger = logging.getLogger(__name__)
_READERS = {  # flags that only some tasks read
    "embeddings": "a search task: beir, nanobeir or one of its sets",
    "search": "a search task: beir, nanobeir or one of its sets",
    "language": "--search bm25 or hybrid and a search task",
    "directions": "the task retrieval",
    "duplicates": "the task retrieval",
    "query_prompt": "a search task: beir, nanobeir or one of its sets",
    "document_prompt": "a search task: beir, nanobeir or one of its sets",
    "mode": "a transfer task",
}


class Scored(NamedTuple):
    """A line of the table: a model and how it searches.

    Attributes:
        name: of the model, and of the search if there are several.
        model_name: of the model.
        model: its folder or hub id.
        search: see `eval.retrieval.beir.SEARCHES`.
    """

    name: str
    model_name: str
    model: str
    search: str


def parser() -> Parser:
    from eval.retrieval.beir import SEARCHES
    from eval.retrieval.lexical import LANGUAGES
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
        "  python -m eval runs/infocse --tasks beir --beir scifact nano --max_length 512 --embeddings runs/vectors\n"
        "  python -m eval runs/infocse --tasks beir --beir scifact --search dense bm25 hybrid",
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
    add_prompts(p, "query", "document")
    p.add_argument("--beir", nargs="+", default=[], metavar="NAME",
                   help="sets for --tasks beir: folders in DATA_DIR/beir, paper14, nano")  # fmt: skip
    p.add_argument("--search", nargs="+", choices=SEARCHES, default=["dense"], help="how search tasks rank: by cosine, "
                   "by BM25, by both; several give one table and the intervals between them")  # fmt: skip
    p.add_argument("--language", choices=LANGUAGES, default="english", help="stop words of BM25; only English words "
                   "are stemmed")  # fmt: skip
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
                   "several models or searches write DIR/NAME.json, with / in NAME replaced by -")  # fmt: skip
    return p


def options_of(args: argparse.Namespace, name: str, search: str = "dense") -> Options:
    """The task options of one model and search."""
    from eval.encode import device_here
    from eval.tasks import Options

    split = args.split or ("dev" if args.mode == "dev" else "test")
    return Options(split, args.mode, tuple(args.beir), _path_of(args.embeddings, name, args.models), search,
                   args.language, args.directions, args.duplicates, device_here(), progress=True)  # fmt: skip


def _path_of(path: str | None, name: str, several: list) -> str | None:
    """`path` itself, or PATH/NAME if there are several."""
    return str(Path(path) / name.replace("/", "-")) if path and len(several) > 1 else path


def lines_of(args: argparse.Namespace, models: Mapping[str, str]) -> list[Scored]:
    """All models with all searches."""
    return [Scored(f"{name} {search}" if len(args.search) > 1 else name, name, model, search)
            for name, model in models.items() for search in args.search]  # fmt: skip


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


def score_model(args: argparse.Namespace, scored: Scored) -> tuple[dict[Any, Result], list[dict]]:
    """Score one model with one search; return the results by task, and all rows."""
    from eval.encode import Encode
    from eval.tasks import score_all
    from models.encoder import load_encoder

    options, model = options_of(args, scored.model_name, scored.search), scored.model
    prompts = {"query": args.query_prompt, "document": args.document_prompt}
    encoder, tokenizer = load_encoder(model, args.pooling, args.max_length, prompts)
    encoder.to(options.device)
    logger.info("%s: pooling %s, at most %d tokens", model, encoder.pooling, encoder.max_length)
    start = time.perf_counter()
    encode = Encode(encoder, tokenizer, bf16=args.bf16, progress=options.progress)
    if prompts := encode.settings.get("prompts"):
        logger.info("%s: prompts in search: %s", model, json.dumps(prompts, ensure_ascii=False))
    results = score_all(encode, tasks_of(args, options), args.data_dir)
    rows = rows_of(results, scored.name, None, **encode.settings)
    if encode.unknown:
        rows.append(unknown_tokens(encode, options) | {"model": scored.name, "run": None, **encode.settings})
    logger.info("scored in %.1f s", time.perf_counter() - start)
    return results, rows


def _check(model: str, pooling: str | None) -> None:
    """Raise BadInput if configuration, pooling, head or tokenizer cannot be read; weights are not loaded."""
    from models.encoder import described
    from models.loading import load_config, load_tokenizer

    described(model, load_config(model), pooling)
    load_tokenizer(model)


def outputs_of(args: argparse.Namespace, lines: list[Scored]) -> dict[str, str | None]:
    """The scores file of each line; BadInput if one cannot be written, or two lines would share one."""
    suffix = ".json" if len(lines) > 1 else ""
    if suffix and args.output and Path(args.output).is_file():
        several = "models" if len(args.models) > 1 else "searches"
        raise BadInput(f"--output {args.output} is a file; several {several} need a folder")
    files = [_path_of("models", scored.name, lines) for scored in lines] if suffix else []
    if twice := next((path for path in files if files.count(path) > 1), None):
        raise BadInput(f"two models would write to {Path(twice).name}; name them: NAME=MODEL")
    outputs = {scored.name: _path_of(args.output, f"{scored.name}{suffix}", lines) for scored in lines}
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
            "duplicates": args.duplicates == "identical", "query_prompt": args.query_prompt is not None,
            "document_prompt": args.document_prompt is not None, "search": args.search != ["dense"]}  # fmt: skip
    if args.language != "english" and args.search == ["dense"]:
        raise BadInput(f"--language needs {_READERS['language']}; add them")
    for name in (name for name, given in used.items() if given):
        attribute = "embeddings" if name.endswith("_prompt") else name  # of search tasks
        if not any(hasattr(task, attribute) for task in tasks):
            raise BadInput(f"--{name} needs {_READERS[name]}; add it to --tasks")
    for task in tasks[1:]:
        task.load(args.data_dir)  # fail on a missing file now, not after the first task is scored


def main(argv: list[str] | None = None) -> list[dict]:
    """Run the command and return the rows it printed."""
    args = parser().parse_args(argv)
    if args.beir and "beir" not in map(str.lower, args.tasks):
        raise BadInput("--beir needs --tasks beir; add it")
    args.search = list(dict.fromkeys(args.search))
    models = labelled(args.models)
    lines = lines_of(args, models)
    outputs = outputs_of(args, lines)
    check_tasks(args)
    for model in models.values() if len(models) > 1 else ():
        _check(model, args.pooling)  # fail on a bad model now, not after the first model is scored
    with TemporaryDirectory(prefix="eval-") as temporary:
        if len(args.search) > 1:  # the dense and the hybrid search share vectors, and the intervals are read from files
            args.embeddings = args.embeddings or f"{temporary}/embeddings"
            outputs = {name: path or _path_of(temporary, f"{name}.json", lines) for name, path in outputs.items()}
        rows = score_lines(args, lines, outputs)
        if len(args.search) > 1:
            show(intervals(lines, outputs), args.output)
    return rows


def score_lines(args: argparse.Namespace, lines: list[Scored], outputs: Mapping[str, str | None]) -> list[dict]:
    """Score, write and print every line; return all rows."""
    rows: dict[str, list[dict]] = {}
    try:
        for scored in lines:
            results, rows[scored.name] = score_model(args, scored)
            if outputs[scored.name]:
                write_scores(outputs[scored.name], results, rows[scored.name])
    finally:  # also if a file cannot be written, or a later model fails
        all_rows = [one for line_rows in rows.values() for one in line_rows]
        if all_rows:
            show(details(all_rows) if args.details else tables(rows), args.output)
    return all_rows


def intervals(lines: list[Scored], files: Mapping[str, str]) -> str:
    """What every later search of a model adds to an earlier one, with the paired bootstrap's 95 % intervals."""
    from eval.compare.intervals import COLUMNS, RESAMPLES, SEED, compare
    from eval.compare.sides import from_files

    parts = []
    for earlier, later in combinations(lines, 2):
        if earlier.model_name == later.model_name:
            a, b = (from_files(scored.name, [Path(files[scored.name])]) for scored in (later, earlier))
            cells = [line.cells() for line in compare(a, b)]
            parts.append(f"A: {later.name}; B: {earlier.name}\n{markdown([COLUMNS, *cells])}")
    return "\n" + "\n\n".join([*parts, f"bootstrap: {RESAMPLES} resamples of the queries (seed {SEED})"])


if __name__ == "__main__":
    run_command(main)
