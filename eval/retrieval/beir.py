"""Zero-shot retrieval: any set in BEIR's format (arXiv 2104.08663), InfoCSE's fourteen sets, and NanoBEIR's thirteen.

A set lies in DATA_DIR/beir/NAME: `corpus.jsonl`, `queries.jsonl`, `qrels/SPLIT.tsv`. Documents are title, space,
text; ranking is by cosine, ties by order in the corpus; the 1000 best documents are kept, which is as far as `map`
and `mrr` see. Queries without a positive judgement are left out, since nothing they retrieve is right. A set of
NanoBEIR that is not there is fetched from the hub.
"""

import logging
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np

from common.errors import BadInput, unwritable
from common.files import writing_folder
from eval.encode import Encoder
from eval.metrics.retrieval import METRICS, per_query
from eval.retrieval.beir_files import HEADER, BeirCorpus, read_corpus, read_qrels, read_queries
from eval.retrieval.search import top_k
from eval.scores import Result, row
from eval.vectors.store import VectorStore, claim

logger = logging.getLogger(__name__)
RETRIEVED = 1000
DOCUMENTS = 50_000  # in a shard of vectors, all held at once; a stopped run loses at most so many
WHOLE = ""  # the only part of a set without parts
PAPER14 = (  # InfoCSE, Table 3
    "trec-covid nfcorpus nq fiqa arguana webis-touche2020 quora cqadupstack dbpedia-entity scidocs climate-fever "
    "scifact hotpotqa fever"
).split()
NANO = (  # 50 queries each, drawn from sets of BEIR
    "NanoArguAna NanoClimateFEVER NanoDBPedia NanoFEVER NanoFiQA2018 NanoHotpotQA NanoMSMARCO NanoNFCorpus NanoNQ "
    "NanoQuoraRetrieval NanoSCIDOCS NanoSciFact NanoTouche2020"
).split()
NANO_OWNER = "zeta-alpha-ai"  # of NanoBEIR on the hub: a data set NAME has a configuration a part, in one split `train`
SHORTHANDS = {"paper14": PAPER14, "nano": NANO}
FORUMS = "android english gaming gis mathematica physics programmers stats tex unix webmasters wordpress".split()
PARTS = {"cqadupstack": tuple(FORUMS)}


@dataclass(frozen=True)
class BeirSet:
    """A corpus, and the queries with a positive judgement: id -> text, and id -> place of a document -> grade."""

    corpus: BeirCorpus
    queries: dict[str, str]
    grades: dict[str, dict[int, int]]


@dataclass(frozen=True)
class BeirTask:
    """One set.

    Attributes:
        name: the folder below DATA_DIR/beir.
        split: which judgements, `qrels/SPLIT.tsv`.
        parts: folders below it that are scored alone and averaged, as CQADupStack's forums.
        without_own_id: drop the document that has the query's id, as BEIR does for its sets: queries of ArguAna and
            Quora are documents themselves. Not for others, where ids may be running numbers: in CISI, documents
            7 times relevant would vanish.
        embeddings: folder in which the vectors of the documents stay; None for a temporary one.
        device: where the search runs.
    """

    name: str
    split: str = "test"
    parts: tuple[str, ...] = (WHOLE,)
    without_own_id: bool = False
    embeddings: str | None = None
    device: str = "cpu"

    def load(self, data_dir: str | Path) -> dict[str, BeirSet]:
        """The set, part by part, every line checked; BadInput with file and line, or where the hub has no answer."""
        folder = Path(data_dir) / "beir" / self.name
        if self.name in NANO and not folder.exists():
            fetch(self.name, folder)
        return {part: read_set(folder / part, self.split) for part in self.parts}

    def score(self, encode: Encoder, data_dir: str | Path) -> Result:
        """Headline: nDCG@10; then recall@100, MAP, MRR, all x 100; then every part's nDCG@10."""
        values = {part: self.per_query(encode, part, one) for part, one in self.load(data_dir).items()}
        total = sum(len(one[METRICS[0]]) for one in values.values())
        how = "mean of queries" if len(values) == 1 else "mean of forums"
        means = {metric: np.mean([one[metric].mean() for one in values.values()]) for metric in METRICS}
        rows = [row(self.name, self.split, metric, how, total, mean) for metric, mean in means.items()]
        for part, one in values.items():
            if part != WHOLE:
                ndcg = one[METRICS[0]]
                rows.append(row(self.name, self.split, METRICS[0], f"forum {part}", len(ndcg), ndcg.mean()))
        # Queries are weighted by forum, so that their mean is the headline's mean of forums.
        weighed = [one[METRICS[0]] * total / (len(values) * len(one[METRICS[0]])) for one in values.values()]
        return Result(rows, {"value": np.concatenate(weighed) / 100})

    def per_query(self, encode: Encoder, part: str, one: BeirSet) -> dict[str, np.ndarray]:
        """Every metric x 100 of every query of one part, (Q,)."""
        queries = encode(list(one.queries.values()))
        folder = Path(self.embeddings) / self.name / part if self.embeddings else None
        with embedded(encode, one.corpus, queries.shape[1], folder) as shards:
            _, found = top_k(queries, shards.blocks(), RETRIEVED + self.without_own_id, self.device)
        grades = ({str(place): grade for place, grade in one.grades[query].items()} for query in one.queries)
        return per_query(self._rankings(found, one), grades)

    def _rankings(self, found: np.ndarray, one: BeirSet) -> Iterator[list[str]]:
        """Indices (Q, k) as strings, which need less memory than ids, without the query's own document."""
        own = one.corpus.index_of(list(one.queries)) if self.without_own_id else [None] * len(found)
        for places, mine in zip(found.tolist(), own, strict=True):
            yield [str(place) for place in places if place != mine][:RETRIEVED]


@dataclass(frozen=True)
class DocumentVectors:
    """The vectors of one corpus in a folder.

    Attributes:
        store: holds `shard-00000.npy` and so on, each (at most `size`, `width`) float32.
        documents: in all shards.
        width: entries of a vector.
        size: documents in a shard.
    """

    store: VectorStore
    documents: int
    width: int
    size: int

    def blocks(self) -> Iterator[tuple[int, np.ndarray]]:
        """(index of the first document, memory-mapped vectors), one shard mapped at a time."""
        for start in range(0, self.documents, self.size):
            yield start, np.load(self._checked(start), mmap_mode="r")

    def fill(self, encode: Encoder, corpus: BeirCorpus) -> None:
        """Encode the missing shards, after checking the others; BadInput for one of another shape."""
        starts = range(0, self.documents, self.size)
        there = [start for start in starts if self._shard(start)[2].is_file()]
        for start in there:
            self._checked(start)
        if there:
            logger.info("%s: %d of %d shards exist already", self.store.folder, len(there), len(starts))
        for start in sorted({*starts} - {*there}):
            stem, rows, _ = self._shard(start)
            vectors = encode(corpus.texts(start, start + rows))
            self.store.write(stem, [vectors], "choose another --embeddings, or TMPDIR without it")

    def _shard(self, start: int) -> tuple[str, int, Path]:
        """Stem, number of documents and file of the shard that begins with a document."""
        stem = f"shard-{start // self.size:05}"
        return stem, min(self.size, self.documents - start), self.store.files(stem)[0]

    def _checked(self, start: int) -> Path:
        stem, rows, path = self._shard(start)
        if damage := self.store.damage(stem, rows, self.width):
            raise BadInput(f"{damage}; remove it, and it is computed again")
        return path


@contextmanager
def embedded(
    encode: Encoder, corpus: BeirCorpus, width: int, folder: Path | None = None, size: int = DOCUMENTS
) -> Iterator[DocumentVectors]:
    """All vectors of a corpus; shards in `folder` are not computed again.

    Args:
        encode: texts -> (N, width); with a folder it also needs `identity` and `max_length`, as `eval.encode.Encode`.
        corpus: the documents.
        width: entries of a vector.
        folder: keeps the shards for the next run; None uses a temporary folder.
        size: documents in a shard.

    Raises:
        BadInput: the folder belongs to another corpus, model or setting, or holds a damaged shard.
    """
    if folder is not None:
        claim(folder, {"corpus": corpus.sha256, "documents": len(corpus), "model": encode.identity,
                       "max_length": encode.max_length, "shard_size": size}, "shard-*.npy")  # fmt: skip
    with nullcontext(folder) if folder else TemporaryDirectory(prefix="embeddings-") as place:
        vectors = DocumentVectors(VectorStore(Path(place), "npy"), len(corpus), width, size)
        vectors.fill(encode, corpus)
        yield vectors


def fetch(name: str, folder: Path) -> None:
    """Lay out one of NanoBEIR's sets from the hub (HF_ENDPOINT, HF_TOKEN) in BEIR's format; BadInput if it cannot."""
    from datasets import load_dataset  # here: it takes a second, and few commands need it

    source = f"{NANO_OWNER}/{name}"
    try:
        corpus, queries, qrels = (load_dataset(source, part, split="train") for part in ("corpus", "queries", "qrels"))
        judged = qrels.select_columns(HEADER[:2]).add_column(HEADER[2], [1] * len(qrels))
    except Exception as error:  # whatever the library raises, the names or the connection are the cause
        reason = " ".join(str(error).split())[:300] or type(error).__name__
        raise BadInput(f"{folder}: is not there, and {source} cannot be loaded from the hub ({reason}); put the set "
                       "there, or look at HF_ENDPOINT and HF_TOKEN") from error  # fmt: skip
    try:
        with writing_folder(folder) as place:
            (place / "qrels").mkdir()
            corpus.to_json(place / "corpus.jsonl", force_ascii=False)
            queries.to_json(place / "queries.jsonl", force_ascii=False)
            judged.to_csv(place / "qrels" / "test.tsv", sep="\t")
    except OSError as error:
        raise unwritable(error, f"{folder}: cannot be written ({error.strerror}); choose another --data_dir") from error


def read_set(folder: Path, split: str) -> BeirSet:
    """One folder in BEIR's format; BadInput with file and line."""
    corpus, queries = read_corpus(folder / "corpus.jsonl"), read_queries(folder / "queries.jsonl")
    path = folder / "qrels" / f"{split}.tsv"
    qrels = read_qrels(path, queries, corpus)
    grades = {query: qrels[query] for query in queries if max(qrels.get(query, {}).values(), default=0) > 0}
    if not grades:
        raise BadInput(f"{path}: no query has a positive judgement, so there is nothing to score")
    return BeirSet(corpus, {query: queries[query] for query in grades}, grades)


def tasks(
    chosen: Iterable[str], split: str = "test", embeddings: str | None = None, device: str = "cpu"
) -> tuple[BeirTask, ...]:
    """The chosen sets, each once: folders below DATA_DIR/beir, `paper14` or `nano`."""
    names = dict.fromkeys(name for given in chosen for name in SHORTHANDS.get(given, [given]))
    for name in names:
        if not name or Path(name).is_absolute() or ".." in Path(name).parts:
            raise BadInput(f"--beir '{name}' is not below DATA_DIR/beir; choose --data_dir and name a folder in it")
    published = {*PAPER14, *NANO}
    return tuple(
        BeirTask(name, split, PARTS.get(name, (WHOLE,)), name.split("/")[0] in published, embeddings, device)
        for name in names
    )
