"""`python -m adapt MODEL --text FILE ... --output DIR`: the best search in your own documents."""

from __future__ import annotations

import argparse
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from common.errors import run_command

# isort: split

from adapt.pseudo import PseudoQuery, pseudo_queries
from common.files import write_json
from common.flags import Parser, add_cache, add_columns, add_encoder
from common.folders import filling, locked, refuse_existing
from common.ranges import Seed, check_range
from common.streams import show
from data.draws import permutation
from eval.dev import BETTER, verdict
from eval.metrics.retrieval import METRICS, per_query
from eval.retrieval.beir import SEARCHES
from eval.retrieval.lexical import LANGUAGES
from eval.scores import markdown
from infocse import Embedder
from models.saved_format import read_modules
from search.documents import read_documents
from search.index import STRIDE, WINDOW, Document
from search.recipe import Recipe

DESCRIPTION = """Find the best search in your own documents for a model.

The default is the hybrid of model and BM25, and BM25 alone for an encoder that was not made for
search. Queries are made from a third of the documents; half of them choose among these two and the
model alone, the other half must show by a 95 % interval that the chosen one is better than the
default. With fewer than 150 queries the default stays.

DIR gets the model and search.json: how `python -m search` and `Embedder` search with it. adapt.json
there has all figures and queries.
"""
COMPARED = ("bm25", "hybrid", "dense")
LEAST = 150  # pseudo-queries; fewer choose nothing
SEARCHED = 10_000  # documents at most
_TOP = 10


def parser() -> Parser:
    """The command line of `python -m adapt`."""
    example = "sentence-transformers/all-MiniLM-L6-v2 --text MY_FOLDER --output runs/mine"
    p = Parser(
        prog="python -m adapt",
        description=DESCRIPTION,
        epilog=f"example:\n  python -m adapt {example}",
    )
    p.add_argument(
        "model", metavar="MODEL", help="an embedding model, a run, a plain encoder, or a hub id"
    )
    text = "files or folders, as for `python -m search build`"
    p.add_argument("--text", nargs="+", required=True, metavar="DOCUMENTS", help=text)
    p.add_argument("--output", required=True, metavar="DIR", help="a new folder")
    add_columns(p)
    add_encoder(p, auto=True)
    add_cache(p, "documents")
    words = "stemmer and stop words of BM25"
    p.add_argument("--language", choices=LANGUAGES, default="english", help=words)
    p.add_argument("--seed", type=int, default=42, help="seed of the queries")
    return p


def main(argv: list[str] | None = None) -> dict[str, Any]:
    """Compare the searches, write the best one; returns the content of adapt.json."""
    args = parser().parse_args(argv)
    check_range("--seed", args.seed, Seed)
    with locked(Path(args.output)):  # from here on another command is refused
        return run(args)


def run(args: argparse.Namespace) -> dict[str, Any]:
    """Make queries, compare, write."""
    refuse_existing(Path(args.output))
    paths = [Path(name) for name in args.text]
    documents = read_documents(paths, args.text_column, args.title_column)
    some = permutation(args.seed, 0, len(documents), "searched")[:SEARCHED]
    documents = [documents[number] for number in sorted(some.tolist())]
    plain = read_modules(args.model) is None
    how: dict[str, Any] = {"max_length": args.max_length, "bf16": args.bf16, "progress": True}
    pooling = args.pooling or ("avg" if plain else None)
    model = Embedder(args.model, pooling, cache_dir=args.cache_dir, **how)
    default = "bm25" if plain else "hybrid"
    queries = pseudo_queries(documents, args.seed, args.language)
    result = {"model": args.model, "documents": len(documents), "default": default}
    result |= {"search": default, "language": args.language, "seed": args.seed}
    if len(queries) < LEAST:
        result["said"] = (
            f"{args.output}: {default}, the default. {len(queries)} of {len(documents)} documents "
            f"make a pseudo-query (a third at most; no short ones, no copies), {LEAST} are needed "
            "to choose another search."
        )
    else:
        result |= choice(ndcg(model, documents, queries, args.language), default)
        result["said"] = f"{table(result)}\n\n{args.output}: {in_words(result)}"
    result["queries"] = [[query.text, documents[query.document].id] for query in queries]
    with filling(Path(args.output)) as written:
        model.encoder.module.cpu().save(str(written), model.tokenizer)
        Recipe(SEARCHES[result["search"]], args.language).write(written)
        write_json(written / "adapt.json", result)
    show(result["said"])
    return result


def ndcg(
    model: Embedder,
    documents: Sequence[Document],
    queries: Sequence[PseudoQuery],
    language: str,
) -> dict[str, np.ndarray]:
    """nDCG@10 of every pseudo-query by search, (Q,), from 0 to 1, as `python -m search` finds."""
    changed = list(documents)
    for query in queries:
        changed[query.document] = changed[query.document]._replace(text=query.answer)
    model.index_documents(changed, language, WINDOW, STRIDE)
    texts = [query.text for query in queries]
    grades = [{str(query.document): 1} for query in queries]
    values = {}
    for name in COMPARED:
        found = model.hits(texts, _TOP, SEARCHES[name])
        rankings = [[str(hit.document) for hit in hits] for hits in found]
        values[name] = per_query(rankings, grades)[METRICS[0]] / 100
    return values


def choice(scores: Mapping[str, np.ndarray], default: str) -> dict[str, Any]:
    """The search to use: half of the queries choose one, the other half compares it.

    Args:
        scores: of every query by search.
        default: the search that is kept unless the chosen one is better.

    Returns:
        Its name, `search`, the chosen one, and `searches`: every search on the first half, and
        compared with the default on the second.
    """
    rows = {}
    for name, values in scores.items():
        compared = verdict({"value": scores[default][1::2]}, {"value": values[1::2]})
        rows[name] = {"chosen_by": 100 * float(values[::2].mean()), **compared}
    best = max(rows, key=lambda name: (rows[name]["chosen_by"], name == default))
    kept = best if rows[best]["verdict"] == BETTER else default
    return {"search": kept, "best": best, "searches": rows}


def table(result: Mapping[str, Any]) -> str:
    """The score of every search on both halves, and its gain over the default on the second."""
    gain = f"gain over {result['default']} (95 % interval)"
    lines = [["search", "nDCG@10, to choose", "to compare", gain]]
    for name, row in result["searches"].items():
        lines.append([name, f"{row['chosen_by']:.2f}", f"{row['result']:.2f}", _gain(row)])
    return markdown(lines)


def in_words(result: Mapping[str, Any]) -> str:
    """Which search was written and why."""
    best, default = result["best"], result["default"]
    facts = result["searches"][best]
    halves = f"{facts['examples']} pseudo-queries that did not choose it"
    if best == default:
        return f"{default}, the default. No other search is better on pseudo-queries."
    if result["search"] == default:
        return (
            f"{default}, the default. {best} is not shown to be better on {halves}: {_gain(facts)}."
        )
    return f"{best}. On {halves} it is better than {default}, the default: {_gain(facts)}."


def _gain(facts: Mapping[str, Any]) -> str:
    low, high = facts["interval"]
    return f"{facts['difference']:+.2f} ({low:+.2f} to {high:+.2f})"


if __name__ == "__main__":
    run_command(main)
