import math

import evaluate
import numpy as np
import pytest
from scipy.stats import spearmanr

from eval.metrics.cosine import pair_cosines
from eval.sts import Pairs, read_columns, read_sts_year
from tests.data.conftest import written
from tests.refusals import refused
from tests.sources import ROOT

HEADER = "sentence1\tsentence2\tscore\n"
COLUMNS = ("score", "sentence1", "sentence2")
SCORE = " is not a score from 0 to 5"


def year(folder, texts, golds):
    written(folder, texts, "STS.input.X.txt")
    written(folder, golds, "STS.gs.X.txt")
    return read_sts_year(folder, "X")


def test_a_subset_of_a_year_is_read_and_unscored_pairs_are_dropped(tmp_path):
    texts = "a  dog\tthe cat \nnot\tscored\nx\ty\tsource\tmore\n\tblank\nlast\tone\n"
    pairs = year(tmp_path, texts, "5.000\n\n0\n \n2.5\n")
    assert pairs == Pairs(["a dog", "x", "last"], ["the cat", "y", "one"], [5.0, 0.0, 2.5])
    assert year(tmp_path, texts.replace("\n", "\r\n"), "5.000\r\n\r\n0\r\n \r\n2.5") == pairs
    assert year(tmp_path, "\ufeff" + texts, "5.000\n\n0\n \n2.5") == pairs
    # other line separators keep the two files aligned
    pairs = year(tmp_path, "one\u2028more\tx\ntwo\x85more\ty\nthree\x0bz\tw\n", "1\n2\n3\n")
    assert pairs == Pairs(["one more", "two more", "three z"], ["x", "y", "w"], [1, 2, 3])


@pytest.mark.parametrize(
    ("texts", "golds", "said"),
    [
        ("a\tb\nno tab\n", "1\n2\n", "STS.input.X.txt:2: 1 columns separated by tabs"),
        ("a\tb\nc\td\n", "1\nfive\n", f"STS.gs.X.txt:2: 'five'{SCORE}"),
        ("a\tb\nc\td\ne\tf\n", "1\n\n5.1\n", f"STS.gs.X.txt:3: '5.1'{SCORE}"),
        (b"a\tb\nZw\xf6lf\td\n", "1\n2\n", "STS.input.X.txt: cannot be read ('utf-8' codec"),
    ],
)
def test_a_bad_subset_is_refused_with_its_file_and_line(tmp_path, texts, golds, said):
    assert refused(year, tmp_path, texts, golds).startswith(f"{tmp_path}/{said}")


def test_columns_are_found_by_name_in_any_order_or_by_number(tmp_path):
    plain = read_columns(written(tmp_path, HEADER + "a b\tc\t1\nd\te\t2.5\n"), COLUMNS)
    assert plain == Pairs(["a b", "d"], ["c", "e"], [1.0, 2.5])
    other = written(tmp_path, "id\tscore\tsentence2\tsentence1\n7\t1\tc\ta  b\n8\t2.5\te\td\n")
    assert read_columns(other, COLUMNS) == plain
    text = f"\ufeff{HEADER}a b\tc\t1\nd\te\t2.5\n\n"  # an empty last line
    assert read_columns(written(tmp_path, text.replace("\n", "\r\n")), COLUMNS) == plain
    rows = "main\tnews\t2015\t1\t3.2\ta\tb\tlicence\nmain\tnews\t2015\t2\t0\tc\td\n"
    found = read_columns(written(tmp_path, rows), (4, 5, 6))
    assert found == Pairs(["a", "c"], ["b", "d"], [3.2, 0.0])


def test_lone_quotes_keep_rows_apart_and_words_stay_text(tmp_path):
    rows = ['"an open quote\tand "another\t1', "None\tNA\t2", "007\tnan\t3", "1e5\tnull\t4"]
    rows.append('"\t""\t5')
    pairs = read_columns(written(tmp_path, HEADER + "\n".join(rows) + "\n"), COLUMNS)
    assert pairs.left == ['"an open quote', "None", "007", "1e5", '"']
    assert pairs.right == ['and "another', "NA", "nan", "null", '""']
    assert pairs.gold == [1, 2, 3, 4, 5]


BAD = [  # content, line, what is said
    (f"{HEADER}a\tb\t1\nc d\t2\n", 3, "2 columns separated by tabs; expected at least 3"),
    (f"{HEADER}a\tb\t1\n\nc\td\t2\n", 3, "1 columns separated by tabs; expected at least 3"),
    (f"{HEADER}a\tb\tan extra tab\t2\nc\td\t2\n", 2, f"'an extra tab'{SCORE}"),
    ("a\tb\t1\nc\td\t2\n", 1, "the header needs the columns score, sentence1, sentence2"),
    ("", 1, "'score' occurs 0 times"),
    ("sentence1\tsentence2\tscore\tscore\na\tb\t1\t2\n", 1, "'score' occurs 2 times"),
]
for score in ("nan", "inf", "", "5.0001", "-1", "five", "1,5"):
    BAD.append((f"{HEADER}a\tb\t1\nc\td\t{score}\ne\tf\t2\n", 3, f": '{score}'{SCORE}"))


@pytest.mark.parametrize(("content", "line", "said"), BAD)
def test_a_bad_row_is_refused_with_its_line(tmp_path, content, line, said):
    path = written(tmp_path, content)
    message = refused(read_columns, path, COLUMNS)
    assert message.startswith(f"{path}:{line}: ") and said in message


def test_cosines_equal_a_slow_loop_and_are_0_for_a_zero_vector():
    rng = np.random.default_rng(0)
    left, right = rng.normal(size=(2, 6, 5)).astype(np.float32)
    left[2] = right[4] = 0
    values = pair_cosines(left, right)
    for i in range(6):
        norm = math.hypot(*map(float, left[i])) * math.hypot(*map(float, right[i]))
        dot = sum(float(a) * float(b) for a, b in zip(left[i], right[i], strict=True))
        assert values[i] == pytest.approx(dot / norm if norm else 0.0, abs=1e-12)
    assert values[2] == values[4] == 0
    assert values.dtype == np.float64


def test_the_metric_of_the_tables_loads_with_evaluate_and_is_scipy_s():
    metric = evaluate.load(str(ROOT / "eval" / "metrics" / "spearman.py"))
    rng = np.random.default_rng(0)
    for left, right in [rng.integers(0, 9, (2, 40)), rng.normal(size=(2, 40))]:  # ties, none
        measured = metric.compute(predictions=left, references=right)
        assert measured["spearman"] == pytest.approx(100 * spearmanr(left, right).statistic)
    assert metric.compute(predictions=left, references=np.ones(40))["spearman"] == 0
