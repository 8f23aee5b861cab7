"""Small data sets, a toy encoder, and the score of pairs."""

import json

import numpy as np

from eval.metrics import correlation
from eval.sts import similarities


def spearman(encode, pairs):
    """Spearman's correlation x 100 between cosine and gold score."""
    return float(correlation.spearman(similarities(encode, pairs), np.array(pairs.gold)))


def write_stsb(root, rows, split="test"):
    """STS-B in SentEval's layout from (score, left, right); returns `root`."""
    folder = root / "senteval" / "downstream" / "STS" / "STSBenchmark"
    folder.mkdir(parents=True, exist_ok=True)
    lines = [
        f"main\tnews\t2015\t{i}\t{score}\t{left}\t{right}\n"
        for i, (score, left, right) in enumerate(rows)
    ]
    (folder / f"sts-{split}.csv").write_text("".join(lines), encoding="utf-8")
    return root


def write_beir(folder, corpus, queries, **judged):
    """A set in BEIR's format: documents, texts of queries by name, judgements by split."""
    (folder / "qrels").mkdir(parents=True, exist_ok=True)
    for file, records in (
        ("corpus", corpus),
        ("queries", [{"_id": n, "text": text} for n, text in queries.items()]),
    ):
        lines = [json.dumps(record) + "\n" for record in records]
        (folder / f"{file}.jsonl").write_text("".join(lines), encoding="utf-8")
    for split, rows in judged.items():
        lines = [
            "\t".join(map(str, row)) + "\n" for row in [("query-id", "corpus-id", "score"), *rows]
        ]
        (folder / "qrels" / f"{split}.tsv").write_text("".join(lines), encoding="utf-8")
    return folder


class BeirFolder:
    """A small set in BEIR's format under `root`/beir/NAME: 40 documents, 6 queries of graded
    judgements.

    Document `d3` is empty, every fourth has a title; query `q5` has no positive judgement and `q4`
    no judgement.
    """

    WORDS = "stone river lamp orchard signal violin harbour".split()

    def __init__(self, root, name="small"):
        self.root, self.name = root, name
        self.folder = root / "beir" / name
        self.documents = {f"d{i}": self._text(i) if i != 3 else "" for i in range(40)}
        self.titles = {f"d{i}": f"title {i}" for i in range(0, 40, 4)}
        self.queries = {f"q{i}": self._text(6 * i + 1) for i in range(6)}
        self.grades = {
            f"q{i}": {f"d{j}": (i + j) % 4 - 1 for j in range(i, 40, 5)} for i in range(4)
        }
        self.grades["q5"] = {"d1": 0, "d2": -1}
        self.write()

    def _text(self, i):
        return " ".join(self.WORDS[i * step % 7] for step in (1, 2, 3)) + f" {i}"

    def write(self):
        corpus = [
            {"_id": name, "text": text, "metadata": {}}
            | ({"title": self.titles[name]} if name in self.titles else {})
            for name, text in self.documents.items()
        ]
        judged = [
            (query, name, grade)
            for query, grades in self.grades.items()
            for name, grade in grades.items()
        ]
        write_beir(self.folder, corpus, self.queries, test=judged)

    def texts(self):
        """What is encoded for each document."""
        return [
            f"{self.titles.get(name, '')} {text}".strip() for name, text in self.documents.items()
        ]


class Letters:
    """An encoder that counts letters: a vector that only the text decides."""

    max_length, progress = 32, False

    def __init__(self, identity="letters"):
        self.identity = identity

    def __call__(self, texts):
        return np.array(
            [[text.count(letter) for letter in "aeiost"] for text in texts], dtype=np.float32
        )

    def to(self, device):
        return self

    def of(self, role):
        return self
