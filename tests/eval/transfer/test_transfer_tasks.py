from dataclasses import replace

import numpy as np
import pytest

from eval.transfer import tasks as transfer
from eval.transfer.tasks import Examples, read_mrpc, read_sst, read_trec, read_two_files
from eval.transfer.validation import Judge
from tests.refusals import refused

SIZES = {"MR": (10662,), "CR": (3775,), "SUBJ": (10000,), "MPQA": (10606,)}
SIZES |= {"SST2": (67349, 872, 1821), "TREC": (5452, 500), "MRPC": (4076, 1725)}
MRPC_HEADER = "\ufeffQuality\t#1 ID\t#2 ID\t#1 String\t#2 String"


def put(root, path, content):
    file = root / "senteval" / "downstream" / path
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_bytes(content if isinstance(content, bytes) else content.encode())
    return file


def task(name, mode="test"):
    return next(task for task in transfer.tasks(mode) if task.name == name)


def test_two_files_are_sorted_by_words_then_label_and_keep_empty_sentences(tmp_path):
    put(tmp_path, "a", "three word s \n\none\n")
    put(tmp_path, "b", b"caf\xe9\nan other  one\n")
    assert read_two_files("a", "b", tmp_path)["all"] == Examples(
        [("",), ("caf\xe9",), ("one",), ("an other one",), ("three word s",)], [1, 0, 1, 0, 1]
    )


def test_official_splits_are_read_and_sorted(tmp_path):
    for split in ("train", "dev", "test"):
        put(tmp_path, f"SST/binary/sentiment-{split}", f"a b c \t1\n{split}\t0\nz\t1\n")
    assert read_sst(tmp_path)["dev"] == Examples([("dev",), ("z",), ("a b c",)], [0, 1, 1])
    put(tmp_path, "TREC/train_5500.label", b"HUM:ind Who is Caf\xe9 ?\nNUM:date When ?\n")
    put(tmp_path, "TREC/TREC_10.label", "ABBR:exp What is : it ?\n")
    trec = read_trec(tmp_path)
    assert trec["train"] == Examples([("When ?",), ("Who is Caf\xe9 ?",)], [5, 3])
    assert trec["test"] == Examples([("What is : it ?",)], [0])
    for split in ("train", "test"):
        lines = '1\t7\t8\tA " b c\tD', "0\t7\t8\tx y z w\te", f"1\t7\t8\tA b c\t{split} d", ""
        put(tmp_path, f"MRPC/msr_paraphrase_{split}.txt", "\n".join([MRPC_HEADER, *lines]))
    rows = [("A b c", "train d"), ('A " b c', "D"), ("x y z w", "e")]
    assert sorted(read_mrpc(tmp_path)["train"].texts) == sorted(rows)
    assert read_mrpc(tmp_path)["train"] == Examples([rows[0], rows[2], rows[1]], [1, 0, 1])


def test_the_seven_sets_have_their_published_sizes(tmp_path):
    assert {task.name: task.sizes for task in transfer.tasks()} == SIZES
    put(tmp_path, "CR/custrev.pos", "good\n" * 2406)
    put(tmp_path, "CR/custrev.neg", "bad\n" * 1368)
    said = refused(task("CR").load, tmp_path)
    assert "CR in" in said and "has (3774,) examples (all) instead of (3775,)" in said
    put(tmp_path, "CR/custrev.pos", "good\n" * 2407)
    assert len(task("CR").load(tmp_path)["all"].labels) == 3775
    said = refused(task("MR").load, tmp_path)
    assert "rt-polarity.pos: no such file" in said and "data.prepare" in said


@pytest.mark.parametrize(
    ("name", "file", "line"),
    [
        ("SST2", "SST/binary/sentiment-train", "no label\n"),
        ("SST2", "SST/binary/sentiment-train", "text\tgood\n"),
        ("TREC", "TREC/train_5500.label", "HUM:ind\n"),
        ("MRPC", "MRPC/msr_paraphrase_train.txt", f"{MRPC_HEADER}\n1\t7\t8\tA\n"),
        ("MRPC", "MRPC/msr_paraphrase_train.txt", ""),
    ],
)
def test_a_damaged_file_is_refused(tmp_path, name, file, line):
    put(tmp_path, file, line)
    said = refused(task(name).load, tmp_path)
    assert said.startswith(f"{name} in") and "a file is truncated or changed" in said


def by_hash(sentences):
    """Vectors of 8 numbers that depend on the sentence alone, with a trace of its label word."""
    rows = []
    for text in sentences:
        rng = np.random.default_rng(sum(map(ord, text)) + 7 * len(text))
        rows.append(rng.normal(size=8) + 2 * ("good" in text))
    return np.array(rows)


def small(name, sizes, mode="fasttest"):
    return replace(task(name, mode), sizes=sizes)


def test_a_set_without_official_test_rows_is_scored_by_nested_folds(tmp_path):
    put(tmp_path, "MR/rt-polarity.pos", "".join(f"good film {i}\n" for i in range(40)))
    put(tmp_path, "MR/rt-polarity.neg", "".join(f"film {i}\n" for i in range(40)))
    result = small("MR", (80,)).score(by_hash, tmp_path)
    headline, dev = result.rows
    named = {"task": "MR", "split": "test", "mode": "fasttest", "n": 80}
    assert headline.items() >= (named | {"aggregation": "mean of folds"}).items()
    assert headline["value"] == pytest.approx(100 * result.items["value"].mean(), abs=0.01)
    assert 60 < headline["value"] <= 100 and dev["split"] == "dev"
    [only] = small("MR", (80,), "dev").score(by_hash, tmp_path).rows
    assert (only["split"], only["value"]) == ("dev", dev["value"])


def test_pairs_are_judged_by_difference_and_product_with_f1_beside(tmp_path):
    for split, size in (("train", 60), ("test", 30)):
        rows = [f"{i % 2}\t1\t2\tgood {i}\t{'good' if i % 2 else 'bad'} {i}" for i in range(size)]
        put(tmp_path, f"MRPC/msr_paraphrase_{split}.txt", "\n".join([MRPC_HEADER, *rows]) + "\n")
    chosen = small("MRPC", (60, 30))
    result = chosen.score(by_hash, tmp_path)
    splits = chosen.load(tmp_path)
    texts = splits["train"].texts + splits["test"].texts
    u, v = (by_hash([pair[side] for pair in texts]).astype(np.float32) for side in (0, 1))
    labels = np.array(splits["train"].labels + splits["test"].labels)
    features = np.hstack([abs(u - v), u * v])
    expected = Judge(features, labels, "fasttest").crossed(np.arange(60), np.arange(60, 90))
    accuracy, dev, f1 = result.rows
    assert (accuracy["value"], dev["value"], f1["metric"]) == (expected.test, expected.dev, "f1")
    guessed, gold = expected.predicted == 1, labels[60:] == 1
    assert f1["value"] == round(200 * (guessed & gold).sum() / (guessed.sum() + gold.sum()), 2)
    assert result.items["value"].tolist() == (guessed == gold).tolist()
