"""`python -m search build DOCUMENTS --model M --output INDEX`, then `python -m search query INDEX "a question"`."""

from __future__ import annotations

import argparse
import logging
import sys
import time
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from common.errors import BadInput, run_command
from common.flags import Parser, add_encoder, positive
from common.model_place import check_place
from common.streams import show
from eval.retrieval.lexical import LANGUAGES

if TYPE_CHECKING:  # torch is imported inside the functions, so that flags are checked first
    from embedder import Embedder
    from search.index import Hit, Index

logger = logging.getLogger(__name__)


def parser() -> Parser:
    p = Parser(
        prog="python -m search",
        description="Search in documents by meaning (cosine) and by words (BM25). See docs/search.md.",
        epilog="examples:\n"
        "  python -m search build MY_FOLDER --model MODEL --output runs/index\n"
        '  python -m search query runs/index "how to restart the server"\n'
        "  python -m search query runs/index < questions.txt",
    )
    commands = p.add_subparsers(dest="command", required=True, metavar="build|query")
    build = commands.add_parser("build", help="encode documents and write an index")
    build.add_argument("documents", nargs="+", metavar="DOCUMENTS", help="folders, whose .md, .txt and .html files are "
                       "a document each; .jsonl (text, title, _id) and .txt files with one per line")  # fmt: skip
    build.add_argument("--model", required=True, help="as for `python -m eval`")
    build.add_argument("--output", required=True, metavar="INDEX", help="a new folder")
    add_encoder(build)
    build.add_argument("--window", type=positive, default=200, help="tokens of a window of a long document, at most "
                       "what the model reads")  # fmt: skip
    build.add_argument("--stride", type=positive, default=100, help="tokens from one window to the next")
    build.add_argument("--dtype", choices=["float16", "int8", "float32"], default="float16", help="of stored vectors")
    stop_words = "stop words; only English words are stemmed"
    build.add_argument("--language", choices=LANGUAGES, help=f"{stop_words} (default: the model's search.json, or "
                       "english)")  # fmt: skip
    query = commands.add_parser("query", help="search in an index")
    query.add_argument("index", metavar="INDEX")
    query.add_argument("query", nargs="?", help="default: lines from standard input")
    query.add_argument("--top_k", type=positive, default=5, help="documents to show")
    query.add_argument("--weight", type=float, help="of the cosine; the rest is BM25's (default: the model's "
                       "search.json, or 0.7)")  # fmt: skip
    query.add_argument("--model", help="where the index's model is now (default: where it was)")
    return p


def main(argv: list[str] | None = None) -> None:
    args = parser().parse_args(argv)
    build(args) if args.command == "build" else query(args)


def build(args: argparse.Namespace) -> None:
    """Read, cut, encode and write."""
    from embedder import Embedder
    from search.documents import cutter, read_documents
    from search.index import Index, refuse_existing
    from search.recipe import Recipe

    if args.stride > args.window:
        raise BadInput(f"--stride {args.stride} is above --window {args.window}: text between windows would be lost")
    refuse_existing(Path(args.output))
    check_place(args.model)
    documents = read_documents([Path(name) for name in args.documents])
    model = Embedder(args.model, args.pooling, args.max_length, bf16=args.bf16, progress=True)
    window = min(args.window, model.longest)
    if window < args.window:
        logger.info("windows of %d tokens: the model reads no more", window)
    start = time.perf_counter()
    cut = cutter(model.tokenizer, window, min(args.stride, window))
    recipe = model.recipe or Recipe()
    language = args.language or (recipe.language if recipe.weight < 1 else None)
    model.index = Index.build(partial(model.encode, role="document"), documents, cut, language)
    model.save(args.output, args.dtype)
    show(f"{args.output}: {len(documents)} documents in {len(model.index.windows)} windows, "
         f"{time.perf_counter() - start:.1f} s", args.output)  # fmt: skip


def query(args: argparse.Namespace) -> None:
    """Print the hits of one query, or of every line of standard input."""
    from embedder import Embedder

    model = Embedder.load_index(args.index, args.model)
    if args.query is not None:
        show(page(model, args.query, args))
        return
    for line in sys.stdin:
        if line.strip():
            show(f"query: {line.strip()}\n{page(model, line.strip(), args)}\n")


def page(model: Embedder, query: str, args: argparse.Namespace) -> str:
    """The hits of a query as text."""
    [hits] = model.hits([query], args.top_k, args.weight)
    return "\n".join(entry(number, hit, model.index, query) for number, hit in enumerate(hits, start=1))


def entry(number: int, hit: Hit, index: Index, query: str) -> str:
    """Title, id, score and its parts; then a snippet of the best window."""
    from eval.retrieval.lexical import Words
    from search.documents import snippet

    document = index.document(hit.document)
    words = index.lexical.words if index.lexical else Words()
    name = f"{document.title} ({document.id})" if document.title else document.id
    parts = f"cosine {hit.cosine:.3f}" + ("" if hit.bm25 is None else f", BM25 {hit.bm25:.2f}")
    shown = snippet(document.text[hit.start : hit.end], query, words)
    return f"{number}. {name}: score {hit.score:.2f} ({parts})\n   {shown}"


if __name__ == "__main__":
    run_command(main)
