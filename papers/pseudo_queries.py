"""`python -m papers.pseudo_queries MODEL`: do pseudo-queries tell the gains of searches as judged
queries do?

Every kind of pseudo-query, and adapt's mixture of kinds, is compared with the judged queries of six
sets: the gains of nine searches over the model as it is. Then `adapt` runs on all six. Writes
pseudo-queries.json and the tables of pseudo-queries.md, whose text says what they mean.
"""

from __future__ import annotations

import json
import logging
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from importlib.metadata import version
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np
from scipy.stats import spearmanr

from adapt import __main__ as adapt
from adapt.documents import MIXTURE, Document, with_unique_titles
from adapt.pseudo import KINDS, PseudoQueries
from adapt.run import gain
from adapt.searches import AS_IT_IS, BM25, Search, Task, fitted, ndcg, vectors_of
from common.errors import run_command
from common.files import ROOT, write_json, writing
from common.flags import Parser
from common.streams import show
from data.draws import permutation
from eval.dev import IS, verdict
from eval.retrieval.hybrid import WEIGHT
from eval.scores import markdown
from models.encoder import load_encoder
from papers.page import rewritten

logger = logging.getLogger(__name__)
SETS = ("med", "cranfield", "cacm", "npl", "cisi", "scifact")
QUERIES = 200  # of a kind in a set
POWERS = (0.25, 0.5, 1.0)
LAYERED = tuple(Search(power=power, weight=weight) for power in POWERS for weight in (1.0, WEIGHT))
SEARCHES = (AS_IT_IS, Search(weight=WEIGHT), Search(weight=0.7), BM25, *LAYERED)
CHOSEN = "adapt's mixture"
COMMAND = "python -m papers.pseudo_queries MODEL --data_dir DATA_DIR"
Values = dict[Search, dict[int, float]]  # nDCG@10 by document that the query was made from


def main(argv: list[str] | None = None) -> None:
    p = Parser(prog="python -m papers.pseudo_queries", description=__doc__)
    p.add_argument("model", metavar="MODEL", help="an embedding model")
    p.add_argument("--data_dir", default="corpora", help="contains beir/")
    p.add_argument("--cache_dir", default="corpora/cache", help="folder for the prepared text")
    p.add_argument("--runs", default="runs/adapt-study", help="folder for what adapt writes")
    p.add_argument("--output", default=str(ROOT / "results"), help="folder of the page")
    args = p.parse_args(argv)
    content: dict[str, Any] = {"kinds": [], "adapt": {}}
    vectors = vectors_of(*load_encoder(args.model))
    for name in SETS:
        folder = Path(args.data_dir) / "beir" / name
        content["kinds"] += rows_of(folder, vectors)
        words = [f"--text={folder / 'corpus.jsonl'}", f"--labels={folder}", "--seed=0"]
        words += [f"--output={Path(args.runs) / name}", f"--cache_dir={args.cache_dir}"]
        run = adapt.main([args.model, *words])
        content["adapt"][name] = {
            key: run[key] for key in ("shipped", "verdict", "labels", "searches")
        }
    content["versions"] = {name: version(name) for name in ("torch", "transformers", "bm25s")}
    write_json(Path(args.output) / "pseudo-queries.json", content)
    page = Path(args.output) / "pseudo-queries.md"
    before = page.read_text(encoding="utf-8") if page.is_file() else "# Pseudo-queries\n"
    with writing(page) as part:
        part.write_text(rewritten(before, "tables", COMMAND, tables(content)), encoding="utf-8")
    show(tables(content))


def rows_of(
    folder: Path, vectors: Callable[[Sequence[str], str], np.ndarray]
) -> list[dict[str, Any]]:
    """Gains and verdicts of every search in one set, on every kind of pseudo-query and on judged ones."""
    judged = Task.of(folder, "test")
    layers = {power: fitted(vectors(judged.documents, "document"), power) for power in POWERS}
    real = ndcg(judged, vectors, SEARCHES, layers, "english")
    records = map(json.loads, (folder / "corpus.jsonl").read_text(encoding="utf-8").splitlines())
    documents = with_unique_titles(
        [Document(record["title"].strip(), record["text"].strip()) for record in records]
    )
    maker = PseudoQueries([document.text for document in documents])
    order = permutation(0, 0, len(documents), "held out")[: 2 * QUERIES].tolist()
    kinds: dict[str, Values] = {}
    for kind in KINDS:
        made = (
            (index, maker.make(kind, *documents[index], np.random.default_rng([0, index])))
            for index in order
        )
        pairs = dict([(index, pair) for index, pair in made if pair][:QUERIES])
        texts = [
            pairs[i][1] if i in pairs else document.text for i, document in enumerate(documents)
        ]
        task = Task(
            texts,
            [query for query, _ in pairs.values()],
            [{i: 1} for i in pairs],
            [None] * len(pairs),
        )
        scores = ndcg(task, vectors, SEARCHES, layers, "english") if pairs else {}
        kinds[kind] = {
            search: dict(zip(pairs, values.tolist(), strict=True))
            for search, values in scores.items()
        }
        logger.info("%s: %d queries of kind %s", folder.name, len(pairs), kind)
    kinds[CHOSEN] = mixture_of(kinds[kind] for kind in MIXTURE)
    rows = []
    for kind, values in kinds.items():
        for search in SEARCHES[1:] if values else ():
            pseudo = [np.array([*values[side].values()]) for side in (AS_IT_IS, search)]
            row = {"queries": kind, "set": folder.name, "search": str(search), "n": len(pseudo[0])}
            for name, (before, after) in {
                "pseudo": pseudo,
                "real": (real[AS_IT_IS], real[search]),
            }.items():
                outcome = verdict({"value": before}, {"value": after})
                row[name] = {key: outcome[key] for key in ("difference", "interval", "verdict")}
            rows.append(row)
    return rows


def mixture_of(kinds: Iterable[Values]) -> Values:
    """Queries of several kinds, one for a document: the kinds take turns, one that a document lacks is skipped."""
    kinds = [kind for kind in kinds if kind]
    mixed: Values = {search: {} for search in kinds[0]} if kinds else {}
    for number, index in enumerate(
        dict.fromkeys(chain.from_iterable(kind[AS_IT_IS] for kind in kinds))
    ):
        turns = (kinds[(number + turn) % len(kinds)] for turn in range(len(kinds)))
        kind = next(kind for kind in turns if index in kind[AS_IT_IS])
        for search, values in mixed.items():
            values[index] = kind[search][index]
    return mixed


def measures(sets: Sequence[Sequence[tuple[float, float]]]) -> list[str]:
    """Rank correlation, share of equal signs, bias and mean error of pairs of gains by set:
    pseudo-queries, judged.

    The model as it is counts in the ranks with 0.
    """
    pseudo, real = np.array(sets).transpose(2, 0, 1)
    ranks = [
        spearmanr([0, *gains], [0, *others]).statistic
        for gains, others in zip(pseudo, real, strict=True)
    ]
    same, errors = np.mean(np.sign(pseudo) == np.sign(real)), pseudo - real
    return [
        f"{np.mean(ranks):.2f}",
        f"{same:.0%}",
        f"{errors.mean():+.1f}",
        f"{np.abs(errors).mean():.1f}",
    ]


def tables(content: Mapping[str, Any]) -> str:
    """Kinds of queries, verdicts of adapt's mixture, and what adapt wrote."""
    gains: dict[str, dict[str, list]] = {}
    counts: Counter = Counter()
    for row in content["kinds"]:
        pair = tuple(row[side]["difference"] for side in ("pseudo", "real"))
        gains.setdefault(row["queries"], {}).setdefault(row["set"], []).append(pair)
        if row["queries"] == CHOSEN:
            counts[row["real"]["verdict"], row["pseudo"]["verdict"]] += 1
    kinds = [["queries", "sets", "rank correlation", "same sign", "bias", "mean error"]]
    for name in (*KINDS, CHOSEN):
        kinds.append([name, str(len(gains[name])), *measures([*gains[name].values()])])
    verdicts = [["judged queries", *(f"pseudo-queries: {word}" for word in IS)]]
    verdicts += [[real, *(str(counts[real, word]) for word in IS)] for real in IS]
    shipped = [
        [
            "set",
            "adapt writes",
            "gain on pseudo-queries",
            "judged before",
            "after",
            "gain (95 % interval)",
        ]
    ]
    for name, run in content["adapt"].items():
        [row] = [row for row in run["searches"] if row["search"] == run["shipped"]]
        scores = [f"{run['labels'][side]:.2f}" for side in ("start", "result")]
        shipped.append([name, run["shipped"], gain(row["pseudo"]), *scores, gain(run["labels"])])
    means = [
        np.mean([run["labels"][side] for run in content["adapt"].values()])
        for side in ("start", "result")
    ]
    shipped.append(
        ["mean", "", "", *(f"{mean:.2f}" for mean in means), f"{means[1] - means[0]:+.2f}"]
    )
    made_by = ", ".join(f"{name} {number}" for name, number in content["versions"].items())
    return "\n\n".join([markdown(kinds), markdown(verdicts), markdown(shipped), made_by])


if __name__ == "__main__":
    run_command(main)
