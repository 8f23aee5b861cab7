"""`python -m search build DOCUMENTS --model M --output INDEX`, then `query INDEX "question"`."""

from __future__ import annotations

import argparse
import json
import logging
import sys
import time
from functools import partial
from pathlib import Path

from common.errors import BadInput, run_command
from common.flags import Parser, add_columns, add_encoder, add_pooling, positive
from common.folders import locked, refuse_existing
from common.streams import show
from embedder import Embedder
from eval.retrieval.hybrid import WEIGHT
from eval.retrieval.lexical import LANGUAGES, Words
from search.documents import FOREIGN, cutter, read_documents, snippet, unread
from search.index import Document, Index
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
        "  python -m search query runs/index < questions.txt",
    )
    commands = p.add_subparsers(dest="command", required=True, metavar="build|query")
    build = commands.add_parser("build", help="encode documents and write an index")
    texts = (
        "folders, whose .md, .txt and .html files are a document each; .csv, .tsv, .parquet and "
    )
    texts += ".jsonl files with one per row, .txt files with one per line"
    build.add_argument("documents", nargs="+", metavar="DOCUMENTS", help=texts)
    build.add_argument("--model", required=True, help="as for `python -m eval`")
    build.add_argument("--output", required=True, metavar="INDEX", help="a new folder")
    add_columns(build)
    add_encoder(build)
    window = "tokens of a window of a long document, at most what the model reads"
    build.add_argument("--window", type=positive, default=200, help=window)
    build.add_argument(
        "--stride", type=positive, default=100, help="tokens from one window to the next"
    )
    dtypes = ["float16", "int8", "float32"]
    build.add_argument(
        "--dtype", choices=dtypes, default="float16", help="type of the stored vectors"
    )
    build.add_argument(
        "--language",
        choices=LANGUAGES,
        help="stemmer and stop words (default: the model's search.json, or english)",
    )
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
    query.add_argument("--model", help="where the index's model is now (default: where it was)")
    add_pooling(query)
    query.add_argument("--under", metavar="PATH", help="only documents whose id is PATH or below")
    query.add_argument("--json", action="store_true", help="one JSON object per hit and line")
    large = "read the large files too, to see that they are as they were written"
    query.add_argument("--verify", action="store_true", help=large)
    return p


def main(argv: list[str] | None = None) -> None:
    args = parser().parse_args(argv)
    if args.command == "query":
        query(args)
        return
    with locked(Path(args.output)):  # from here on another command is refused
        build(args)


def build(args: argparse.Namespace) -> None:
    """Read, cut, encode and write."""
    if args.stride > args.window:
        raise BadInput(
            f"--stride {args.stride} is above --window {args.window}: text between windows would "
            "be lost"
        )
    refuse_existing(Path(args.output))
    paths = [Path(name) for name in args.documents]
    documents = read_documents(paths, args.text_column, args.title_column)
    model = Embedder(args.model, args.pooling, args.max_length, bf16=args.bf16, progress=True)
    start = time.perf_counter()
    window, stride = min(args.window, model.longest), args.stride
    if window < 1:
        raise BadInput(f"{args.model}: its document prompt leaves no room for a document's tokens")
    if window < args.window:  # windows overlap by the same share
        stride = max(1, stride * window // args.window)
        logger.info("windows have %d tokens, one every %d: the model's limit", window, stride)
    warn(args.model, model, documents)
    cut = cutter(model.tokenizer, window, stride)
    recipe = model.recipe or Recipe()
    language = args.language or (recipe.language if recipe.weight < 1 else None)
    model.index = Index.build(partial(model.encode, role="document"), documents, cut, language)
    model.save(args.output, args.dtype)
    counts = f"{len(documents)} documents in {len(model.index.windows)} windows"
    show(f"{args.output}: {counts}, {time.perf_counter() - start:.1f} s")


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
        if args.query is None and not args.json:
            lines.append("")
        show("\n".join(lines))


if __name__ == "__main__":
    run_command(main)
