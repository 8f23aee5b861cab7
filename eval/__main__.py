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
from typing import NamedTuple

from common.errors import BadInput, run_command
from common.flags import Parser, add_cache, add_encoder, add_prompts, check_output, labelled
from common.old_flags import EVALUATION
from common.streams import show
from eval.compare.intervals import COLUMNS, RESAMPLES, SEED, compare
from eval.compare.sides import from_files
from eval.encode import Encode, device_here
from eval.retrieval.beir import SEARCHES, BeirTask
from eval.retrieval.lexical import LANGUAGES
from eval.scores import BEGINNING, items_path, markdown, rows_of, score_tables, write_scores
from eval.tasks import GROUPS, Options, Task, score_all, tasks_chosen
from eval.transfer.validation import MODES

logger = logging.getLogger(__name__)


class Scored(NamedTuple):
    """A line of the table: a model and how it searches."""

    name: str  # of the model, and of the search if there are several
    label: str  # of the model
    model: str  # its folder or hub id
    search: str  # see `eval.retrieval.beir.SEARCHES`


def parser() -> Parser:
    p = Parser(
        prog="python -m eval",
        description="Score sentence encoders: STS (Spearman x 100), transfer (accuracy), retrieval "
        "(nDCG, recall).",
        epilog="examples:\n"
        "  python -m eval runs/infocse --tasks sts --output runs/infocse/scores.json\n"
        "  python -m eval runs/infocse --tasks transfer --mode fasttest\n"
        "  python -m eval runs/simcse runs/infocse --tasks retrieval --output runs/scores\n"
        "  python -m eval bert-base-uncased --pooling cls_before_pooler --tasks STS-B --split dev\n"
        "  python -m eval runs/infocse --dev_file my_pairs.tsv\n"
        "  python -m eval runs/infocse --tasks beir --beir scifact nano --max_length 512\n"
        "  python -m eval runs/infocse --tasks beir --beir scifact --search dense bm25 hybrid",
    )
    p.old = {**EVALUATION, "embeddings": "`--cache_dir`, which keeps vectors by their text"}
    model = (
        "run or export folder, Hugging Face encoder or sentence-transformers model; several give "
        "one table"
    )
    p.add_argument("models", nargs="+", metavar="[NAME=]MODEL", help=model)
    groups = f"{', '.join(GROUPS)} or task names"
    p.add_argument("--tasks", nargs="+", default=[], metavar="TASK", help=groups)
    pairs = "your own pairs: tab-separated, header sentence1, sentence2, score (0 to 5)"
    p.add_argument("--dev_file", help=pairs)
    split = "split of STS and BEIR; dev implies --mode dev"
    p.add_argument("--split", choices=["test", "dev"], default="test", help=split)
    mode = (
        "of transfer: test, as in the papers (10 folds), or fasttest, or dev for dev scores (5 "
        "folds, rmsprop); dev implies --split dev"
    )
    p.add_argument("--mode", choices=[*MODES], default="test", help=mode)
    add_encoder(p)
    add_prompts(p, "query", "document")
    sets = "sets to search in: folders in DATA_DIR/beir, paper14, nano; adds --tasks beir"
    p.add_argument("--beir", nargs="+", default=[], metavar="NAME", help=sets)
    search = (
        "how to rank in BEIR's sets: dense (cosine), bm25, hybrid (both), hybrid-0.1 to "
        "hybrid-0.9 (that weight of the cosine); several are compared in one table, with intervals"
    )
    named = p.add_argument("--search", nargs="+", choices=[*SEARCHES], default=["dense"])
    named.metavar, named.help = "SEARCH", search
    language = "stemmer and stop words of BM25"
    p.add_argument("--language", choices=LANGUAGES, default="english", help=language)
    add_cache(p, "search tasks")
    p.add_argument("--data_dir", default="corpora", help="folder with senteval/downstream and beir")
    output = (
        "write all rows, also of subsets, to this JSON file, and the scores of each example next "
        "to it; several models or searches write DIR/NAME.json"
    )
    p.add_argument("--output", help=output)
    return p


def main(argv: list[str] | None = None) -> list[dict]:
    """Run the command and return the rows it printed."""
    args = parser().parse_args(argv)
    from models.encoder import described  # here: --help needs no model
    from models.loading import load_config, load_tokenizer

    models = labelled(args.models)
    searches = list(dict.fromkeys(args.search))
    tasks = tasks_of(args, searches[0])
    _refuse_unused(args, tasks)
    lines = [
        Scored(f"{label} {search}" if len(searches) > 1 else label, label, model, search)
        for label, model in models.items()
        for search in searches
    ]
    outputs = {scored.name: _path_of(args.output, scored.name, lines) for scored in lines}
    for output in filter(None, outputs.values()):
        check_output(output, [args.dev_file], BEGINNING)
        check_output(str(items_path(output)), [args.dev_file], b"pk")
    # Fail on a bad model or a missing file now, not after the first is scored.
    for model in models.values():
        described(model, load_config(model), args.pooling)
        load_tokenizer(model)
    for task in tasks[1:]:
        task.load(args.data_dir)
    with TemporaryDirectory(prefix="eval-") as temporary:
        if len(searches) > 1:  # their intervals are read from files
            for name, path in outputs.items():
                outputs[name] = path or _path_of(temporary, name, lines)
        rows = score_lines(args, lines, outputs)
        if len(searches) > 1:
            show(intervals(lines, outputs))
    return rows


def _refuse_unused(args: argparse.Namespace, tasks: list[Task]) -> None:
    """Raise BadInput for flags of search if no set is searched: other tasks rank by cosine."""
    if any(isinstance(task, BeirTask) for task in tasks):
        return
    for name in ("search", "language", "query_prompt", "document_prompt"):
        if getattr(args, name) != parser().get_default(name):
            raise BadInput(
                f"--{name} is for BEIR's sets (--beir NAME); {tasks[0].name} would ignore it"
            )


def _path_of(path: str | None, name: str, several: list) -> str | None:
    """`path` itself, or PATH/NAME.json if there are several."""
    return str(Path(path) / f"{name}.json") if path and len(several) > 1 else path


def tasks_of(args: argparse.Namespace, search: str) -> list[Task]:
    """The tasks with one search; STS if none is named."""
    names = [*args.tasks]
    if args.beir:
        names.append("beir")
    # A dev score of one task beside a test score of another helps nobody.
    dev = "dev" in (args.split, args.mode)
    options = Options(
        split="dev" if dev else "test",
        mode="dev" if dev else args.mode,
        beir=tuple(args.beir),
        cache_dir=args.cache_dir,
        search=search,
        language=args.language,
        device=device_here(),
    )
    return tasks_chosen(names, args.dev_file, options)


def score_lines(
    args: argparse.Namespace, lines: list[Scored], outputs: Mapping[str, str | None]
) -> list[dict]:
    """Score, write and print every line; return all rows."""
    from models.encoder import load_encoder

    rows: dict[str, list[dict]] = {}
    prompts = {"query": args.query_prompt, "document": args.document_prompt}
    try:
        for scored in lines:
            encoder, tokenizer = load_encoder(scored.model, args.pooling, args.max_length, prompts)
            encode = Encode(encoder.to(device_here()), tokenizer, bf16=args.bf16, progress=True)
            logger.info("%s: %s", scored.model, json.dumps(encode.settings, ensure_ascii=False))
            start = time.perf_counter()
            results = score_all(encode, tasks_of(args, scored.search), args.data_dir)
            logger.info("scored in %.1f s", time.perf_counter() - start)
            rows[scored.name] = rows_of(results, scored.name, None, **encode.settings)
            if file := outputs[scored.name]:
                write_scores(file, results, rows[scored.name])
    finally:  # also if a file cannot be written, or a later model fails
        all_rows = [row for model_rows in rows.values() for row in model_rows]
        if all_rows:
            show(score_tables(rows))
    return all_rows


def intervals(lines: list[Scored], files: Mapping[str, str | None]) -> str:
    """What every later search of a model adds to an earlier one, with 95 % intervals."""
    parts = []
    for earlier, later in combinations(lines, 2):
        if earlier.label == later.label:
            a = from_files(later.name, [Path(str(files[later.name]))])
            b = from_files(earlier.name, [Path(str(files[earlier.name]))])
            cells = [line.cells() for line in compare(a, b)]
            parts.append(f"A: {later.name}; B: {earlier.name}\n{markdown([COLUMNS, *cells])}")
    parts.append(f"bootstrap: {RESAMPLES} resamples of the queries (seed {SEED})")
    return "\n" + "\n\n".join(parts)


if __name__ == "__main__":
    run_command(main)
