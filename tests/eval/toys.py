"""Small data sets and a toy encoder."""

import json

import numpy as np

from eval.metrics import correlation
from eval.scores import Result, row, rows_of, write_scores

SUBSETS = {
    "STS12": ["MSRpar", "MSRvid", "SMTeuroparl", "surprise.OnWN", "surprise.SMTnews"],
    "STS13": ["FNWN", "headlines", "OnWN"],
    "STS14": ["deft-forum", "deft-news", "headlines", "images", "OnWN", "tweet-news"],
    "STS15": ["answers-forums", "answers-students", "belief", "headlines", "images"],
    "STS16": ["answer-answer", "headlines", "plagiarism", "postediting", "question-question"],
}


def sts_files(pairs, sizes):
    """The STS sets in SentEval's layout, path below `downstream` -> text.

    Args:
        pairs: name of a file, number -> so many (left, right, score).
        sizes: set -> its number of pairs; years also get unscored ones.
    """
    files = {}
    for year, subsets in SUBSETS.items():
        counts = np.full(len(subsets), sizes[year] // len(subsets))
        counts[0] += sizes[year] - counts.sum()
        for subset, count in zip(subsets, counts, strict=True):
            rows = pairs(subset, count)
            rows[3:3] = [("never", "scored", "")] * 2
            files[f"STS/{year}-en-test/STS.input.{subset}.txt"] = [row[:2] for row in rows]
            files[f"STS/{year}-en-test/STS.gs.{subset}.txt"] = [row[2:] for row in rows]
    for split, count in {"train": 10, "dev": 1500, "test": sizes["STS-B"]}.items():
        files[f"STS/STSBenchmark/sts-{split}.csv"] = stsb_rows(pairs(split, count))
    head = ["pair_ID", "sentence_A", "sentence_B", "relatedness_score", "entailment_judgment"]
    for split, count in {"train": 4500, "trial": 500, "test_annotated": sizes["SICK-R"]}.items():
        rows = [(i, *row, "NEUTRAL") for i, row in enumerate(pairs(split, count))]
        files[f"SICK/SICK_{split}.txt"] = [head, *rows]
    joined = {name: ["\t".join(map(str, row)) for row in rows] for name, rows in files.items()}
    return {name: "".join(f"{line}\n" for line in lines) for name, lines in joined.items()}


def stsb_rows(pairs):
    return [("main", "news", "2015", i, row[2], *row[:2]) for i, row in enumerate(pairs)]


def write_sts(root, files):
    """Files of `sts_files` below a data folder, which is returned."""
    for name, text in files.items():
        path = root / "senteval" / "downstream" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
    return root


def write_stsb(root, rows, split="test"):
    """STS-B in SentEval's layout from (score, left, right); returns `root`."""
    lines = stsb_rows([(left, right, score) for score, left, right in rows])
    text = "".join("\t".join(map(str, line)) + "\n" for line in lines)
    return write_sts(root, {f"STS/STSBenchmark/sts-{split}.csv": text})


def scored(folder, name, cosines, golds):
    """A file of scores as `python -m eval --output` writes it, from the cosines of every task."""
    results = {}
    for task, similarity in cosines.items():
        value = correlation.spearman(similarity, golds[task])
        how = ("spearman", "all"), ("pearson", "all")
        rows = [row(task, "test", *names, len(similarity), value) for names in how]
        results[task] = Result(rows, {"similarity": similarity, "gold": golds[task]})
    path = folder / name / "scores.json"
    write_scores(path, results, rows_of(results, name, None))
    return path


class BeirFolder:
    """A small set in BEIR's format under `root`/beir/NAME: 40 documents, 6 queries of graded
    judgements. Document `d3` is empty, every fourth has a title; query `q5` has no positive
    judgement and `q4` no judgement."""

    WORDS = "stone river lamp orchard signal violin harbour".split()

    def __init__(self, root, name="small"):
        self.root, self.name = root, name
        self.folder = root / "beir" / name
        self.documents = {f"d{i}": self._text(i) if i != 3 else "" for i in range(40)}
        self.titles = {f"d{i}": f"title {i}" for i in range(0, 40, 4)}
        self.queries = {f"q{i}": self._text(6 * i + 1) for i in range(6)}
        self.grades = {}
        for i in range(4):
            self.grades[f"q{i}"] = {f"d{j}": (i + j) % 4 - 1 for j in range(i, 40, 5)}
        self.grades["q5"] = {"d1": 0, "d2": -1}
        self.write()

    def _text(self, i):
        return " ".join(self.WORDS[i * step % 7] for step in (1, 2, 3)) + f" {i}"

    def write(self):
        lines = {"qrels/test.tsv": ["query-id\tcorpus-id\tscore"]}
        for query, grades in self.grades.items():
            rows = [f"{query}\t{name}\t{grade}" for name, grade in grades.items()]
            lines["qrels/test.tsv"] += rows
        for file, texts in {"corpus": self.documents, "queries": self.queries}.items():
            records = {}
            for name, text in texts.items():
                records[name] = {"_id": name, "text": text, "metadata": {}}
            for name in records.keys() & self.titles.keys():
                records[name]["title"] = self.titles[name]
            lines[f"{file}.jsonl"] = map(json.dumps, records.values())
        (self.folder / "qrels").mkdir(parents=True, exist_ok=True)
        for name, of_file in lines.items():
            (self.folder / name).write_text("".join(f"{line}\n" for line in of_file))

    def texts(self):
        """What is encoded for each document."""
        documents = self.documents.items()
        return [f"{self.titles.get(name, '')} {text}".strip() for name, text in documents]


def letters(texts):
    """Vectors by letter counts, which only the text decides."""
    rows = [[text.lower().count(letter) for letter in "abcdefgh"] for text in texts]
    return np.array(rows, dtype=np.float32)


class Letters:
    """`letters` as an encoder."""

    max_length, progress = 32, False

    def __init__(self, identity="letters"):
        self.identity = identity

    def __call__(self, texts):
        return letters(texts)

    def to(self, device):
        return self

    def of(self, role):
        return self
