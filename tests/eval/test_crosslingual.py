"""MTEB's multilingual STS sets: from the hub's layout, a row for each language pair."""

import gzip
import json
import random

import numpy as np
import pytest
from scipy.stats import spearmanr

from common.errors import BadInput
from data.prepare import FILES, prepare
from eval.scores import rows_of
from eval.sts import CROSSLINGUAL, cosines, crosslingual
from eval.tasks import Options, score_all, tasks_named
from tests.data.conftest import hub  # noqa: F401 - a fixture
from tests.eval.letters import Letters
from tests.refusals import refused

ALL = {data_set.name: data_set for data_set in CROSSLINGUAL}


def rows_in(found, language, rng):
    texts = [" ".join(rng.choices("osa sei tae iota aeo".split(), k=4)) for _ in range(2 * found.pairs[language])]
    texts[3] = ""  # as some of STS22 are
    pairs = zip(texts[::2], texts[1::2], strict=True)
    return [
        {"sentence1": one, "sentence2": two, "score": found.scores[0] + number % 4 * 0.75, "lang": language}
        for number, (one, two) in enumerate(pairs)
    ]


def packed(rows):
    return gzip.compress("".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows).encode())


@pytest.fixture(params=ALL)
def laid_out(request):
    """A made set: its files by name in the repository, and its rows by language."""
    found, rng = ALL[request.param], random.Random(4)
    rows = {language: rows_in(found, language, rng) for language in found.pairs}
    bodies = {}
    for language, each in rows.items():
        bodies.setdefault(found.file.format(language), []).extend(each)
    return found, {name: packed(each) for name, each in bodies.items()}, rows


def write(found, files, root):
    for name, body in files.items():
        path = root / found.repo / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(body)


def test_every_language_pair_is_a_row_and_their_mean_the_average(laid_out, tmp_path):
    found, files, rows = laid_out
    write(found, files, tmp_path)
    tasks = tasks_named([found.name], Options())
    assert [task.name for task in tasks] == [f"{found.name}-{language}" for language in found.pairs]
    encode = Letters()
    scored = rows_of(score_all(encode, tasks, tmp_path), "toy", None)
    headline = {row["task"]: row for row in scored if row["headline"]}
    values = []
    for language, each in rows.items():
        near = cosines(*(encode([row[name] for row in each]) for name in ("sentence1", "sentence2")))
        row = headline[f"{found.name}-{language}"]
        values.append(100 * spearmanr(near, [one["score"] for one in each]).statistic)
        assert row["n"] == found.pairs[language] and row["value"] == pytest.approx(values[-1], abs=1e-6)
    assert headline["Avg."]["value"] == pytest.approx(np.mean(values), abs=0.006)


def test_one_language_pair_by_name_and_no_dev_split():
    assert tasks_named(["sts17-EN-de"], Options())[0].pairs == 250
    with pytest.raises(BadInput, match="--tasks sts22 needs --split test"):
        tasks_named(["sts22"], Options("dev"))


def test_the_sets_come_from_the_hub_into_the_layout_that_is_read(laid_out, hub, tmp_path):  # noqa: F811
    found, files, _ = laid_out
    [revision] = {source.revision for source in FILES[found.name.lower()][0]}
    hub.repo, hub.commit = found.repo, revision
    hub.files = {name.rpartition("/")[2]: body for name, body in files.items()}
    [row] = prepare([found.name.lower()], tmp_path)
    assert row[:3] == (found.name.lower(), len(files), sum(found.pairs.values()))
    assert set(tmp_path.rglob("*.gz")) == {tmp_path / found.repo / name for name in files}
    assert all(task.load(tmp_path) for task in crosslingual(found.name, "test"))
    before = len(hub.requests)
    prepare([found.name.lower()], tmp_path)
    assert len(hub.requests) == before


def test_a_damaged_file_is_refused(tmp_path):
    path = tmp_path / ALL["STS17"].repo / "test" / "ar-ar.jsonl.gz"
    path.parent.mkdir(parents=True)
    [task] = tasks_named(["STS17-ar-ar"], Options())
    for score, said in ((1, "has 2 scored pairs"), (5.5, ":2: '5.5' is not a score from 0 to 5")):
        rows = [{"sentence1": "a", "sentence2": "b", "score": value} for value in (2.0, score)]
        path.write_bytes(packed(rows))
        assert said in refused(task.load, tmp_path)
    path.write_bytes(path.read_bytes()[:-9])
    assert "cannot be read (" in refused(task.load, tmp_path)
