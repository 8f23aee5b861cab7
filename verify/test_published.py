"""A real checkpoint with published scores, through the command a user types."""

import pytest

import eval.__main__ as command
from eval.scores import headline

# sentence-transformers' published scores of all-MiniLM-L6-v2 on the STS test sets (MTEB, the same concatenated
# protocol). SICK-R is ours on SentEval's 4,927 test pairs: MTEB's 9,927 pairs are another set.
PUBLISHED = {
    "STS12": 72.37,
    "STS13": 80.60,
    "STS14": 75.59,
    "STS15": 85.39,
    "STS16": 78.99,
    "STS-B": 82.03,
    "SICK-R": 77.15,
}


@pytest.fixture(scope="module")
def minilm_rows(minilm, data_dir):
    rows = command.main([str(minilm), "--tasks", "sts", "--data_dir", data_dir])
    return {row["task"]: row for row in headline(rows)}


@pytest.mark.parametrize("task", PUBLISHED)
def test_minilm_scores_what_is_published(minilm_rows, task):
    assert minilm_rows[task]["value"] == pytest.approx(PUBLISHED[task], abs=0.02)
