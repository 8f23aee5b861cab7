"""`python -m search build DOCUMENTS --model M --output INDEX`, then `query INDEX "question"`."""

from __future__ import annotations

import argparse
import json
import logging
import os
import sys
import time
from pathlib import Path
from typing import Any

from common.errors import BadInput, run_command
from common.flags import Parser, add_cache, add_columns, add_encoder, add_pooling, positive
from common.folders import MANIFEST, Facts, locked, refuse_existing, standing
from common.streams import show
from embedder import COLUMNS, Embedder
from eval.retrieval.hybrid import WEIGHT
from eval.retrieval.lexical import LANGUAGES, Words
from eval.vectors import DTYPES
from search.documents import FOREIGN, read_documents, snippet, unread
from search.export import export
from search.index import STRIDE, WINDOW, Document, Index
from search.recipe import Recipe

logger = logging.getLogger(__name__)


def parser() -> Parser:
    p = Parser(
        prog="python -m search",
        description="Search in documents by meaning (cosine) and by words (BM25). See "
        "docs/search.md.",
        epilog="examples:\n"
        "  python -m search build MY_FOLDER --model MODEL --output runs/index\n"
        '  python -m search query runs/index "how to restart the server"\n'
        "  python -m search query runs/index < questions.txt\n"
        "  python -m search export runs/index --output runs/parquet",
    )
    commands = p.add_subparsers(dest="command", required=True, metavar="build|query|export")
    build = commands.add_parser("build", help="encode documents; write an index, or update one")
    texts = (
        "folders, whose .md, .txt and .html files are a document each; .csv, .tsv, .parquet and "
        ".jsonl files with one per row, .txt files with one per line"
    )
    build.add_argument("documents", nargs="+", metavar="DOCUMENTS", help=texts)
    build.add_argument("--model", required=True, help="as for `python -m eval`")
    output = (
        "a new folder, or an index of the same model: only new text is encoded, documents that are "
        "gone are dropped, and what is not given stays as it was built"
    )
    build.add_argument("--output", required=True, metavar="INDEX", help=output)
    add_columns(build)
    add_encoder(build, auto=True)
    add_cache(build, "windows")
    window = f"tokens of a window of a long document, at most what the model reads ({WINDOW})"
    build.add_argument("--window", type=positive, help=window)
    stride = f"tokens from one window to the next ({STRIDE}, or half of --window)"
    build.add_argument("--stride", type=positive, help=stride)
    build.add_argument("--dtype", choices=DTYPES, help="type of the stored vectors (float16)")
    language = "stemmer and stop words (default: the model's search.json, or english)"
    build.add_argument("--language", choices=LANGUAGES, help=language)
    query = commands.add_parser("query", help="search in an index")
    query.add_argument("index", metavar="INDEX", help="the folder that `build` wrote")
    query.add_argument(
        "query", nargs="?", help="a question (default: every line of standard input is one)"
    )
    query.add_argument("--top_k", type=positive, default=5, help="documents to show")
    query.add_argument(
        "--weight",
        type=float,
        help=f"share of the cosine, from 0 to 1 (default: the model's search.json, or {WEIGHT})",
    )
    moved = "where the index's model is now (default: where it was)"
    query.add_argument("--model", help=moved)
    add_pooling(query)
    query.add_argument("--under", metavar="PATH", help="only documents whose id is PATH or below")
    query.add_argument("--json", action="store_true", help="one JSON object per hit and line")
    large = "read the large files too, to see that they are as they were written"
    query.add_argument("--verify", action="store_true", help=large)
    parquet = "write an index as Parquet, for other engines (docs/engines.md)"
    to = commands.add_parser("export", help=parquet)
    to.add_argument("index", metavar="INDEX", help="the folder that `build` wrote")
    to.add_argument("--output", required=True, metavar="DIR", help="a new folder")
    to.add_argument("--model", help=moved)
    return p


def main(argv: list[str] | None = None) -> None:
    args = parser().parse_args(argv)
    if args.command == "query":
        query(args)
        return
    if args.command == "export":
        windows = export(Index.load(Path(args.index), verify=True), Path(args.output), args.model)
        show(f"{args.output}: {windows} windows")
        return
    if int(os.environ.get("RANK", "0")) == 0:
        with locked(Path(args.output)):  # from here on another command is refused
            build(args)
    else:
        build(args, writes=False)


def build(args: argparse.Namespace, writes: bool = True) -> None:
    """Read, cut, encode what is new, and write; a launcher's other processes encode a share."""
    output = Path(args.output)
    facts = built(args, output)
    # An index saved from Python has none: its documents are not cut.
    window = args.window or facts.get("window") or WINDOW
    half = max(1, args.window // 2) if args.window else facts.get("stride") or STRIDE
    stride = args.stride or half
    if stride > window:
        raise BadInput(
            f"--stride {stride} is above --window {window}: text between windows would be lost"
        )
    paths = [Path(name) for name in args.documents]
    columns = {name: getattr(args, name) or facts.get(name) for name in COLUMNS}
    try:
        documents = read_documents(paths, **columns, written=[output])
    except BadInput as error:
        kept = [f"--{name} {facts[name]}" for name in COLUMNS if facts.get(name)]
        if not kept:
            raise
        said = f"{output} was built with {' '.join(kept)}; give others, or build another index"
        raise BadInput(f"{error}; {said}") from error
    how: dict[str, Any] = {"pooling": args.pooling, "cache_dir": args.cache_dir, "progress": True}
    if facts:
        model = Embedder.load_index(output, args.model, **how)
    else:
        model = Embedder(args.model, max_length=args.max_length, bf16=args.bf16, **how)
    start = time.perf_counter()
    warn(args.model, model, documents)
    recipe = model.recipe or Recipe()
    language = facts.get("language", recipe.language if recipe.weight < 1 else None)
    before = model.index.window_texts() if model.index else []
    language = (args.language or language) if writes else None
    encoded = model.index_documents(documents, language, window, stride)
    if not writes:
        return
    assert model.index is not None
    model.columns = columns
    after = model.index.window_texts()
    model.save(output, args.dtype)
    dropped = len({*before} - {*after})
    counts = f"{encoded} encoded, {len(after) - encoded} kept, {dropped} dropped"
    counts = f"{len(documents)} documents in {len(after)} windows ({counts})"
    show(f"{output}: {counts}, {time.perf_counter() - start:.1f} s")


def built(args: argparse.Namespace, index: Path) -> Facts:
    """How the index that is there was built; empty if there is none.

    Raises:
        BadInput: there is something else, or flags that the index's vectors do not fit.
    """
    if not (standing(index) / MANIFEST).exists():
        refuse_existing(index)
        return {}
    facts = dict(Index.load(index).facts)
    for name in ("max_length", "bf16", "dtype"):
        given = getattr(args, name)
        if given not in (None, facts[name]):
            raise BadInput(
                f"--{name} {str(given).lower()}: {index} was built with "
                f"{str(facts[name]).lower()}; leave the flag out, or choose another folder"
            )
    return facts


def warn(name: str, model: Embedder, documents: list[Document]) -> None:
    """Say when BM25 alone is usually better than the default, with the model or in the language."""
    from models.saved_format import read_modules  # here: importing a command loads no models

    share = unread(model.tokenizer, [document.text for document in documents])
    if share > FOREIGN:
        logger.warning(
            "%s does not know the language: %.0f %% of the text are unknown or single letters to "
            "it; take a model of that language, or query with --weight 0 (BM25 alone)",
            name,
            100 * share,
        )
    elif model.recipe is None and read_modules(name) is None:
        logger.warning(
            "%s is an encoder that was not made for search: BM25 alone (query --weight 0) is "
            "usually better; `python -m adapt` compares them on your documents",
            name,
        )


def query(args: argparse.Namespace) -> None:
    """Print the hits of one query, or of every line of standard input.

    A hit is title, id, score and its parts, and a snippet.
    """
    model = Embedder.load_index(args.index, args.model, args.verify, args.pooling)
    assert model.index is not None
    words = model.index.lexical.words if model.index.lexical else Words()
    for text in [args.query] if args.query is not None else filter(None, map(str.strip, sys.stdin)):
        lines = []
        if args.query is None and not args.json:
            lines.append(f"query: {text}")
        [hits] = model.hits([text], args.top_k, args.weight, args.under)
        for number, hit in enumerate(hits, start=1):
            document = model.index.document(hit.document)
            shown = snippet(document.text[hit.start : hit.end], text, words)
            if args.json:
                facts = {"query": text, "rank": number, "id": document.id, "title": document.title}
                lines.append(json.dumps(facts | hit._asdict() | {"snippet": shown}))
                continue
            name = f"{document.title} ({document.id})" if document.title else document.id
            parts = f"cosine {hit.cosine:.3f}"
            if hit.bm25 is not None:
                parts += f", BM25 {hit.bm25:.2f}"
            lines.append(f"{number}. {name}: score {hit.score:.2f} ({parts})")
            lines.append(f"   {shown}")
        if not hits and not args.json:
            lines.append("no document has a word of the query")
        if args.query is None and not args.json:
            lines.append("")
        show("\n".join(lines))


if __name__ == "__main__":
    run_command(main)
