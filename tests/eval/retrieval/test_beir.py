import math

import numpy as np
import pytest
from datasets import Dataset

import eval.retrieval.beir
from eval.metrics.retrieval import METRICS, per_query
from eval.retrieval.beir import NANO, PAPER14, BeirTask, tasks
from eval.tasks import Options, tasks_named
from tests.eval.toys import BeirFolder
from tests.refusals import refused

WIDTH = 12


def encode(texts):
    """A vector that only the text decides; the empty text has the zero vector."""
    seeds = [len(text) + sum(map(ord, text)) for text in texts]
    rows = [[math.sin(seed * (i + 1)) if seed else 0.0 for i in range(WIDTH)] for seed in seeds]
    return np.array(rows, dtype=np.float32)


def dcg(gains):
    return sum(gain / math.log2(rank + 1) for rank, gain in enumerate(gains, start=1))


def by_hand(ranking, grades):
    """nDCG@10, recall@100, average precision and reciprocal rank of one query, by formula."""
    gains = [max(0, grades.get(document, 0)) for document in ranking]
    ideal = sorted((max(0, grade) for grade in grades.values()), reverse=True)
    relevant = sum(grade > 0 for grade in grades.values())
    ranks = [rank for rank, gain in enumerate(gains, start=1) if gain > 0]
    recall = sum(rank <= 100 for rank in ranks) / relevant
    precision = sum(hits / rank for hits, rank in enumerate(ranks, start=1)) / relevant
    first = 1 / ranks[0] if ranks else 0
    return 100 * np.array([dcg(gains[:10]) / dcg(ideal[:10]), recall, precision, first])


def expected(folder, without_own_id=False, kept=1000):
    """Every query's four figures by a sort of all cosines."""
    names, values = list(folder.documents), []
    vectors = encode(folder.texts()).astype(np.float64)
    lengths = np.maximum(np.linalg.norm(vectors, axis=1), 1e-9)
    for query, text in folder.queries.items():
        grades = folder.grades.get(query, {})
        if max(grades.values(), default=0) > 0:
            cosines = vectors @ encode([text])[0] / lengths
            ranking = [names[i] for i in np.argsort(-cosines.round(6), kind="stable")]
            if without_own_id:
                ranking = [name for name in ranking if name != query]
            values.append(by_hand(ranking[:kept], grades))
    return np.array(values)


def values_of(result):
    return [row["value"] for row in result.rows]


def means(values):
    return pytest.approx(values.mean(0).tolist(), abs=1e-9)


@pytest.mark.parametrize("kept", [1000, 20])
def test_a_set_has_the_scores_of_slow_loops(beir, monkeypatch, kept):
    monkeypatch.setattr(eval.retrieval.beir, "DOCUMENTS", 7)
    monkeypatch.setattr(eval.retrieval.beir, "RETRIEVED", kept)
    monkeypatch.setattr("eval.retrieval.hybrid._DOCUMENTS", 9)
    result = BeirTask("small").score(encode, beir.root)
    values = expected(beir, kept=kept)
    assert values.shape == (4, 4) and (len(np.unique(values)) > 8 or kept == 20)
    assert [row["metric"] for row in result.rows] == ["ndcg@10", "recall@100", "map", "mrr"]
    assert values_of(result) == means(values)
    assert 100 * result.items["value"] == pytest.approx(values[:, 0], abs=1e-9)
    named = {"task": "small", "split": "test", "mode": "test", "aggregation": "mean of queries"}
    assert result.rows[0].items() >= (named | {"n": 4}).items()


def test_metrics_on_long_rankings_equal_the_formulas():
    rng = np.random.default_rng(2)
    rankings, judgements = [], []
    for _ in range(20):
        names = [f"d{i}" for i in rng.permutation(400)]
        rankings.append(names[: rng.integers(0, 300)])
        judgements.append({name: int(rng.integers(-2, 4)) for name in rng.permutation(names)[:60]})
    figures = per_query(rankings, judgements)
    values = np.array([*map(by_hand, rankings, judgements)])
    found = np.stack([figures[name] for name in METRICS], axis=1)
    assert found == pytest.approx(values, abs=1e-4)  # map is a float32


def test_a_document_with_the_id_of_the_query_is_dropped_where_the_set_says_so(beir):
    beir.queries = {f"d{i}": beir.documents[f"d{i}"] for i in (1, 2, 5)}
    beir.grades = {"d1": {"d9": 1, "d1": 1}, "d2": {"d8": 2}, "d5": {"d30": 1}}
    beir.write()
    tasks = (BeirTask("small", without_own_id=drop) for drop in (False, True))
    plain, dropped = (task.score(encode, beir.root).items["value"] * 100 for task in tasks)
    assert plain == pytest.approx(expected(beir)[:, 0], abs=1e-9)
    assert dropped == pytest.approx(expected(beir, without_own_id=True)[:, 0], abs=1e-9)
    assert dropped[0] < plain[0] and (dropped[1:] >= plain[1:]).all()


def test_parts_are_scored_alone_and_averaged(tmp_path):
    parts = [BeirFolder(tmp_path, f"whole/{name}") for name in ("one", "two")]
    parts[1].queries = dict(list(parts[1].queries.items())[:2])
    parts[1].grades = {"q0": {"d0": 1}, "q1": {"d20": 1}}
    parts[1].write()
    result = BeirTask("whole", parts=("one", "two")).score(encode, tmp_path)
    values = [expected(part) for part in parts]
    means = np.mean([part.mean(0) for part in values], axis=0)
    found = [(row["aggregation"], row["n"]) for row in result.rows]
    assert found == [*[("mean of forums", 6)] * 4, ("forum one", 4), ("forum two", 2)]
    of_forums = [part[:, 0].mean() for part in values]
    assert values_of(result) == pytest.approx([*means, *of_forums], abs=1e-9)
    weighed = [part[:, 0] * 6 / (2 * len(part)) for part in values]  # a query weighs as its forum
    assert 100 * result.items["value"] == pytest.approx(np.concatenate(weighed), abs=1e-9)


def test_examples_tell_other_judgements_and_other_documents_apart(beir):
    def examples():
        beir.write()
        return BeirTask("small").score(encode, beir.root).items["example"]

    first = examples()
    beir.grades["q1"] = dict(reversed(beir.grades["q1"].items()))
    assert (examples() == first).all() and len(first) == len(set(first)) == 4
    beir.grades["q0"] |= {"d39": 1}
    assert (examples() != first).sum() == 1
    beir.documents["d7"] = "another text"
    assert (examples() != first).all()


def test_other_ways_to_write_the_same_files_give_the_same_scores(beir):
    values = BeirTask("small").score(encode, beir.root).items["value"]
    for path in (*beir.folder.glob("*.jsonl"), beir.folder / "qrels" / "test.tsv"):
        path.write_bytes(b"\xef\xbb\xbf" + path.read_bytes().replace(b"\n", b"\r\n"))
    assert BeirTask("small").score(encode, beir.root).items["value"].tolist() == values.tolist()


NO_RECORD = "not a JSON object in UTF-8 with strings '_id', 'text' and perhaps 'title'"
NO_JUDGEMENT = "expected query-id, corpus-id, score separated by tabs"
DAMAGE = [  # file, line, its new content, what is said
    ("qrels/test.tsv", 4, b"q0\td1\t1.0", NO_JUDGEMENT),
    ("qrels/test.tsv", 4, b"q9\td1\t1", NO_JUDGEMENT),  # no such query
    ("qrels/test.tsv", 4, b"q0\td0\t1", NO_JUDGEMENT),  # judged before
    ("qrels/test.tsv", 4, b"q0\td\xf6\t1", NO_JUDGEMENT),
    ("qrels/test.tsv", 1, b"query-id\tcorpus-id\tgrade", NO_JUDGEMENT),
    ("corpus.jsonl", 3, b'{"_id": "d0", "text": "x"}', "id 'd0' is already used"),
    ("queries.jsonl", 3, b'{"_id": "q0", "text": "x"}', "id 'q0' is already used"),
]
for line in (
    b'{"_id": "d1", "text": "x',
    b"[" * 200_000,
    b'{"id": "d1", "text": "x"}',
    b'{"_id": 1, "text": "x"}',
    b'{"_id": "", "text": "x"}',
    b'{"_id": "d1", "text": "Zw\xf6lf"}',
    b'{"_id": "d1", "text": "\\ud800"}',
):
    for file in ("corpus.jsonl", "queries.jsonl"):
        DAMAGE.append((file, 3, line, NO_RECORD))


def refusal(beir):
    return refused(BeirTask("small").score, None, beir.root)  # before anything is encoded


@pytest.mark.parametrize(("file", "number", "line", "said"), DAMAGE)
def test_a_damaged_line_is_refused_with_its_number(beir, file, number, line, said):
    path = beir.folder / file
    lines = path.read_bytes().splitlines(keepends=True)
    lines[number - 1] = line + b"\n"
    path.write_bytes(b"".join(lines))
    assert refusal(beir).startswith(f"{path}:{number}: {said}")


@pytest.mark.parametrize("file", ["corpus.jsonl", "queries.jsonl", "qrels/test.tsv"])
def test_a_missing_empty_or_cut_file_is_refused(beir, file):
    path = beir.folder / file
    content = path.read_bytes()
    path.write_bytes(content[:-4])
    assert refusal(beir).startswith(f"{path}:{len(content.splitlines())}: ")
    path.write_bytes(b"")
    assert refusal(beir)
    path.unlink()
    assert refusal(beir).startswith(f"{path}: cannot be read (No such file or directory); ")


def test_a_judged_document_that_is_not_in_the_corpus_counts_as_not_found(beir, caplog):
    before = values_of(BeirTask("small").score(encode, beir.root))
    beir.grades["q0"] |= {"gone": 2, "also gone": 1}
    beir.write()
    after = values_of(BeirTask("small").score(encode, beir.root))
    assert after == means(expected(beir)) and after[1] < before[1]
    assert "judged documents are not in corpus.jsonl and count as" in caplog.text
    beir.grades = {"q0": dict.fromkeys(["d1", *map(str, range(9))], 1)}
    beir.write()
    assert "test.tsv: 9 of 10 judged documents are not in " in refusal(beir)


@pytest.mark.parametrize("grades", [{}, {"q0": {"d1": 0}, "q1": {"d1": -2}}])
def test_judgements_without_a_positive_one_are_refused(beir, grades):
    beir.grades = grades
    beir.write()
    assert "test.tsv: no query has a positive judgement" in refusal(beir)


def test_sets_are_chosen_by_name_and_shorthand():
    def named(*names, split="test"):
        return tasks_named(["beir"], Options(split, beir=names, cache_dir="kept"))

    assert [task.name for task in named("paper14")] == PAPER14 and len(PAPER14) == 14
    assert [task.name for task in named("nano", "NanoNQ", "own")] == [*NANO, "own"]
    sets = named("own", "NanoQuoraRetrieval", "./cqadupstack/", "cqadupstack/tex", split="dev")
    assert [task.without_own_id for task in sets] == [False, True, True, True]
    assert [len(task.parts) for task in sets] == [1, 1, 12, 1] and len(NANO) == 13
    assert {(task.split, task.cache_dir) for task in sets} == {("dev", "kept")}
    assert tasks_named(["Own"], Options(beir=("own",))) == [BeirTask("own")]
    assert tasks(["./arguana/", "arguana", "paper14"]) == tasks(["arguana", *PAPER14])
    assert tasks_named(["STS-B"], Options())
    refused(tasks_named, ["beir"], Options(), match=r"--tasks beir needs --beir NAME .*paper14")


def test_a_nano_set_is_fetched_once(tmp_path, monkeypatch):
    texts = ["a dog / and “a cat”\nby the river", "the sun", ""]
    parts = {
        "corpus": [{"_id": f"d{i}", "text": text} for i, text in enumerate(texts)],
        "queries": [{"_id": "q0", "text": "a dog"}, {"_id": 'say "q1"', "text": "sunny"}],
    }
    judged = {"q0": "d0", 'say "q1"': "d1"}
    parts["qrels"] = [{"query-id": query, "corpus-id": name} for query, name in judged.items()]

    def load_dataset(source, part, split):
        assert (source, split) == ("zeta-alpha-ai/NanoNQ", "train")
        return Dataset.from_list(parts.pop(part))

    monkeypatch.setattr("datasets.load_dataset", load_dataset)
    for _ in range(2):
        data = BeirTask("NanoNQ").load(tmp_path)[""]
    assert [*data.corpus.values()] == texts
    assert data.queries == {"q0": "a dog", 'say "q1"': "sunny"}
    assert data.grades == {query: {name: 1} for query, name in judged.items()}


def test_a_nano_set_that_cannot_be_found_is_one_error(tmp_path):
    said = refused(BeirTask("NanoFEVER").load, tmp_path)
    assert "NanoFEVER: not found, and zeta-alpha-ai/NanoFEVER cannot be loaded from" in said
    assert not list(tmp_path.iterdir())
