"""Zero-shot retrieval: any set in BEIR's format, InfoCSE's fourteen, and NanoBEIR's thirteen.

The format is that of arXiv 2104.08663: a set is a folder DATA_DIR/beir/NAME with `corpus.jsonl`,
`queries.jsonl` and `qrels/SPLIT.tsv`. A document is title, space, text. Ranking is by cosine
(`dense`), by BM25 (`bm25`: only documents with a word of the query) or by both (`hybrid`), ties by
order in the corpus. Only the best 1000 documents are kept, so `map` and `mrr` stop there. Queries
without a positive judgement are skipped. Missing NanoBEIR sets are downloaded from the hub.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np

from common.errors import BadInput, brief
from common.files import digest, sha256
from common.folders import filling
from eval.encode import Encoder, as_role
from eval.metrics.retrieval import METRICS, per_query
from eval.retrieval.beir_files import read_qrels, read_records, write_set
from eval.retrieval.hybrid import WEIGHT, best, cosines, fused
from eval.retrieval.lexical import Lexical
from eval.scores import Result, example_ids, row
from eval.store import Kept
from eval.vectors import read, write

RETRIEVED = 1000
# Cosines held at once, 1 GiB; more for the sake of fewer readings of millions of documents.
COSINES, QUERIES = 2**28, 256
DOCUMENTS = 50_000  # whose vectors are held in memory at a time
WHOLE = ""  # the only part of a set without parts
PAPER14 = (  # InfoCSE, Table 3
    "trec-covid nfcorpus nq fiqa arguana webis-touche2020 quora cqadupstack dbpedia-entity scidocs "
    "climate-fever scifact hotpotqa fever"
).split()
NANO = (  # 50 queries each, drawn from sets of BEIR
    "NanoArguAna NanoClimateFEVER NanoDBPedia NanoFEVER NanoFiQA2018 NanoHotpotQA NanoMSMARCO "
    "NanoNFCorpus NanoNQ NanoQuoraRetrieval NanoSCIDOCS NanoSciFact NanoTouche2020"
).split()
# NanoBEIR on the hub: one configuration per file of a set, each with a split `train`
NANO_OWNER = "zeta-alpha-ai"
TENTHS = {f"hybrid-0.{tenths}": tenths / 10 for tenths in range(1, 10)}
SEARCHES = {"dense": 1.0, "bm25": 0.0, "hybrid": WEIGHT} | TENTHS  # the weight of the cosine
SHORTHANDS = {"paper14": PAPER14, "nano": NANO}
FORUMS = (
    "android english gaming gis mathematica physics programmers stats tex unix webmasters wordpress"
).split()
PARTS = {"cqadupstack": tuple(FORUMS)}


@dataclass(frozen=True)
class BeirSet:
    """A corpus, and the queries with a positive judgement.

    Attributes:
        corpus: id -> title and text, joined by one space.
        sha256: of the corpus's file.
        queries: id -> text.
        grades: query id -> document id -> grade.
    """

    corpus: dict[str, str]
    sha256: str
    queries: dict[str, str]
    grades: dict[str, dict[str, int]]


@dataclass(frozen=True)
class BeirTask:
    """One set.

    Attributes:
        name: the folder in DATA_DIR/beir.
        split: the judgements are `qrels/SPLIT.tsv`.
        parts: subfolders that are scored separately and averaged, such as CQADupStack's forums.
        without_own_id: drop the document with the query's id, as BEIR does for its sets: queries of
            ArguAna and Quora are documents themselves. Not for other sets, where ids may be running
            numbers: in CISI, this would drop 7 relevant documents.
        cache_dir: of the vectors that are kept, see `eval.store`; None: all are computed, which any
            function can do.
        device: where cosines are computed.
        search: one of `SEARCHES`.
        language: of the words of BM25, see `eval.retrieval.lexical`.
    """

    name: str
    split: str = "test"
    parts: tuple[str, ...] = (WHOLE,)
    without_own_id: bool = False
    cache_dir: str | None = None
    device: str = "cpu"
    search: str = "dense"
    language: str = "english"

    def load(self, data_dir: str | Path) -> dict[str, BeirSet]:
        """The set by part, every line checked; BadInput with file and line."""
        folder = Path(data_dir) / "beir" / self.name
        if self.name in NANO and not folder.exists():
            fetch(self.name, folder)
        return {part: read_set(folder / part, self.split) for part in self.parts}

    def score(self, encode: Encoder, data_dir: str | Path) -> Result:
        """Headline: nDCG@10; then recall@100, MAP, MRR, all x 100; then nDCG@10 of every part."""
        sets = self.load(data_dir)
        examples = example_ids(
            (data.sha256, data.queries[query], sorted(grades.items()))
            for data in sets.values()
            for query, grades in data.grades.items()
        )
        metrics = {part: self.per_query(encode, data) for part, data in sets.items()}
        ndcg = {part: values[METRICS[0]] for part, values in metrics.items()}
        total = sum(map(len, ndcg.values()))
        make_row, rows = partial(row, self.name, self.split), []
        how = "mean of queries" if len(metrics) == 1 else "mean of forums"
        for metric in METRICS:
            mean = np.mean([values[metric].mean() for values in metrics.values()])
            rows.append(make_row(metric, how, total, mean))
        for part, values in ndcg.items():
            if part != WHOLE:
                rows.append(make_row(METRICS[0], f"forum {part}", len(values), values.mean()))
        data = digest(examples.tolist())  # another set may have the same name and number of queries
        facts: dict[str, Any] = {"data": data, "search": self.search, "prompts": {}}
        if self.search != "dense":
            facts["language"] = self.language
        if self.search != "bm25":
            for role in ("query", "document"):
                if prompt := getattr(as_role(encode, role), "prompt", ""):
                    facts["prompts"][role] = prompt
        rows = [{**scored, **facts} for scored in rows]
        # Queries are weighted by forum, so that their mean is the headline, a mean over forums.
        weighted = [values * total / (len(ndcg) * len(values)) for values in ndcg.values()]
        return Result(rows, {"value": np.concatenate(weighted) / 100, "example": examples})

    def per_query(self, encode: Encoder, data: BeirSet) -> dict[str, np.ndarray]:
        """Every metric x 100 of every query of one part, (Q,)."""
        ranked = self._ranked(encode, data)
        names, rankings = [*data.corpus], []
        for query, indices in zip(data.queries, ranked, strict=True):
            ranking = [names[index] for index in indices.tolist()]
            if self.without_own_id:
                ranking = [name for name in ranking if name != query]
            rankings.append(ranking[:RETRIEVED])
        return per_query(rankings, [data.grades[query] for query in data.queries])

    def _ranked(self, encode: Encoder, data: BeirSet) -> list[np.ndarray]:
        """The indices of the best documents for every query, best first."""
        texts, corpus = [*data.queries.values()], [*data.corpus.values()]
        weight = SEARCHES[self.search]
        k, ranked = RETRIEVED + self.without_own_id, []
        lexical = Lexical.of(corpus, self.language) if weight < 1 else None
        if lexical and weight == 0:
            for text in texts:
                scores = lexical.scores(text)
                indices = best(scores, k)
                ranked.append(indices[scores[indices] > 0])
            return ranked
        queries = self._encoder(encode, "query")(texts)
        size = max(QUERIES, COSINES // len(corpus))
        with embedded(self._encoder(encode, "document"), corpus) as vectors:
            for start in range(0, len(texts), size):
                some = slice(start, start + size)
                dense = cosines(queries[some], vectors, self.device)
                for scores, text in zip(dense, texts[some], strict=True):
                    if lexical:
                        scores = fused(scores, lexical.scores(text), weight)
                    ranked.append(best(scores, k))
        return ranked

    def _encoder(self, encode: Any, role: str) -> Encoder:
        by_role = as_role(encode, role)
        return Kept(by_role, self.cache_dir) if self.cache_dir else by_role


@contextmanager
def embedded(encode: Encoder, texts: list[str]) -> Iterator[np.ndarray]:
    """All vectors of texts, (N, D) float32, in a file that is mapped as long as the block runs.

    They may need more memory than there is, and are read once for some of the queries at a time.
    """

    def parts() -> Iterator[np.ndarray]:
        for start in range(0, len(texts), DOCUMENTS):
            yield encode(texts[start : start + DOCUMENTS])

    with TemporaryDirectory(prefix="vectors-") as folder:
        write(Path(folder), parts(), "float32")
        yield read(Path(folder))


def fetch(name: str, folder: Path) -> None:
    """Download a NanoBEIR set from the hub and write it in BEIR's format."""
    from datasets import load_dataset  # here: no other command needs this slow import

    source = f"{NANO_OWNER}/{name}"
    try:
        corpus, queries, qrels = (
            load_dataset(source, part, split="train") for part in ("corpus", "queries", "qrels")
        )
    # The library raises many classes; the cause is a name or the connection.
    except Exception as error:
        raise BadInput(
            f"{folder}: not found, and {source} cannot be loaded from the hub ({brief(error)})"
        ) from error
    with filling(folder) as new:
        write_set(new, corpus, queries, zip(qrels["query-id"], qrels["corpus-id"], strict=True))


def read_set(folder: Path, split: str) -> BeirSet:
    """Read one folder in BEIR's format; BadInput with file and line."""
    corpus = read_records(folder / "corpus.jsonl", title=True)
    queries = read_records(folder / "queries.jsonl", title=False)
    path = folder / "qrels" / f"{split}.tsv"
    qrels = read_qrels(path, queries, corpus)
    grades = {}
    for query in queries:
        if max(qrels.get(query, {}).values(), default=0) > 0:
            grades[query] = qrels[query]
    if not grades:
        raise BadInput(f"{path}: no query has a positive judgement; nothing to score")
    content = sha256(folder / "corpus.jsonl")
    return BeirSet(corpus, content, {query: queries[query] for query in grades}, grades)


def tasks(chosen: Iterable[str], split: str = "test", **options: Any) -> tuple[BeirTask, ...]:
    """The chosen sets, folders in DATA_DIR/beir, `paper14` or `nano`, each once.

    `options` are further fields of `BeirTask`.
    """
    paths = [Path(given).as_posix() for given in chosen]  # `./arguana/` is the set `arguana`
    names = dict.fromkeys(name for path in paths for name in SHORTHANDS.get(path, [path]))
    chosen_tasks = []
    for name in names:
        of_beir = name.split("/")[0] in {*PAPER14, *NANO}
        chosen_tasks.append(BeirTask(name, split, PARTS.get(name, (WHOLE,)), of_beir, **options))
    return tuple(chosen_tasks)
