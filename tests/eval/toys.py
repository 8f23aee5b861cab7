"""A toy encoder and small data sets."""

import json
import time

import numpy as np

from eval.sts import correlation, similarities


def spearman(encode, pairs):
    """Spearman's correlation x 100 between cosine and gold score."""
    return correlation(similarities(encode, pairs), np.array(pairs.gold))


class Letters:
    """Counts letters: a vector that only the text decides. Remembers the texts, and can pause or stop."""

    max_length = 32

    def __init__(self, device="cpu", identity="letters", pause=0.0, stop_after=10**9):
        self.identity, self.pause, self.stop_after, self.asked = identity, pause, stop_after, []

    def __call__(self, texts):
        time.sleep(self.pause)
        if len(self.asked) + len(texts) > self.stop_after:
            raise KeyboardInterrupt
        self.asked += texts
        return np.array([[text.count(letter) for letter in "aeiost"] for text in texts], dtype=np.float32)


def write_stsb(root, rows, split="test"):
    """STS-B in SentEval's layout from (score, left, right); returns `root`."""
    folder = root / "senteval" / "downstream" / "STS" / "STSBenchmark"
    folder.mkdir(parents=True, exist_ok=True)
    lines = [f"main\tnews\t2015\t{i}\t{score}\t{left}\t{right}\n" for i, (score, left, right) in enumerate(rows)]
    (folder / f"sts-{split}.csv").write_text("".join(lines), encoding="utf-8")
    return root


class BeirFolder:
    """A small set in BEIR's format under `root`/beir/NAME: 40 documents, 6 queries of graded judgements.

    Document `d3` is empty, every fourth has a title; query `q5` has no positive judgement and `q4` no judgement.
    """

    WORDS = "stone river lamp orchard signal violin harbour".split()

    def __init__(self, root, name="small"):
        self.root, self.name = root, name
        self.folder = root / "beir" / name
        (self.folder / "qrels").mkdir(parents=True)
        self.documents = {f"d{i}": self._text(i) if i != 3 else "" for i in range(40)}
        self.titles = {f"d{i}": f"title {i}" for i in range(0, 40, 4)}
        self.queries = {f"q{i}": self._text(6 * i + 1) for i in range(6)}
        self.grades = {f"q{i}": {f"d{j}": (i + j) % 4 - 1 for j in range(i, 40, 5)} for i in range(4)}
        self.grades["q5"] = {"d1": 0, "d2": -1}
        self.write()

    def _text(self, i):
        return " ".join(self.WORDS[i * step % 7] for step in (1, 2, 3)) + f" {i}"

    def write(self):
        corpus = [
            {"_id": name, "text": text, "metadata": {}} | ({"title": self.titles[name]} if name in self.titles else {})
            for name, text in self.documents.items()
        ]
        queries = [{"_id": name, "text": text} for name, text in self.queries.items()]
        for file, records in (("corpus", corpus), ("queries", queries)):
            lines = [json.dumps(record) + "\n" for record in records]
            (self.folder / f"{file}.jsonl").write_text("".join(lines), encoding="utf-8")
        lines = [
            f"{query}\t{name}\t{grade}\n" for query, grades in self.grades.items() for name, grade in grades.items()
        ]
        (self.folder / "qrels" / "test.tsv").write_text("query-id\tcorpus-id\tscore\n" + "".join(lines))

    def texts(self):
        """What is encoded for each document."""
        return [f"{self.titles.get(name, '')} {text}".strip() for name, text in self.documents.items()]
