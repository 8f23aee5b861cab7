"""The unlabelled text of the STS sets, from generated files in SentEval's layout."""

import pytest

from data.prepare import STS_TEXTS, write_sts_texts


@pytest.fixture
def data_dir(tmp_path):
    root = tmp_path / "senteval" / "downstream"
    for year in range(12, 17):
        folder = root / "STS" / f"STS{year}-en-test"
        folder.mkdir(parents=True)
        (folder / "STS.input.one.txt").write_text(
            f"left {year}\tright {year}\nunscored\tpair\textra\n"
        )
        (folder / "STS.gs.one.txt").write_text("3.0\n\n")
    (root / "STS" / "STSBenchmark").mkdir()
    (root / "SICK").mkdir()
    for split in ("train", "dev", "test"):
        line = f"genre\tfile\tyear\t1\t2.5\t{split}  a\t{split} b\n"
        (root / "STS" / "STSBenchmark" / f"sts-{split}.csv").write_text(line)
    for name in ("SICK_train", "SICK_trial", "SICK_test_annotated"):
        head = "pair_ID\tsentence_A\tsentence_B\trelatedness_score\n"
        (root / "SICK" / f"{name}.txt").write_text(f"{head}1\t{name} a\t{name} b\t4\n")
    return tmp_path


def test_every_sentence_of_every_split_without_scores(data_dir):
    write_sts_texts(data_dir)
    lines = (data_dir / STS_TEXTS).read_text().splitlines()
    assert lines[:4] == ["left 12", "right 12", "unscored", "pair"]
    assert lines[20:26] == ["train a", "train b", "dev a", "dev b", "test a", "test b"]
    assert lines[26:28] == ["SICK_train a", "SICK_train b"] and len(lines) == 32
