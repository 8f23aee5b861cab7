"""A real checkpoint against published scores, a plain computation, single classifiers."""

from pathlib import Path

import numpy as np
import pytest
import pytrec_eval

import eval.__main__ as command
import eval.published.__main__ as published
from eval.encode import Encode
from eval.retrieval.beir import read_set
from eval.transfer.tasks import tasks
from eval.transfer.validation import MODES, Judge
from models.encoder import load_encoder
from tests.eval.transfer import senteval as plain


@pytest.mark.parametrize("name", ["all-MiniLM-L6-v2", "all-mpnet-base-v2"])
def test_a_checkpoint_scores_what_mteb_publishes(name, request, minilm, data_dir, tmp_path):
    folder = minilm if name == "all-MiniLM-L6-v2" else request.config.getoption("--mpnet")
    if not folder:
        pytest.skip("without --mpnet, a folder with all-mpnet-base-v2")
    flags = ["--data_dir", data_dir, "--output", str(tmp_path / "scores.json")]
    [entry] = published.main([f"{name}={folder}", *flags])
    assert [score["verdict"] for score in entry["scores"]] == 7 * ["equal"], entry["scores"]


MAX_LENGTH = 256  # of the published evaluation


@pytest.fixture
def ndcg(minilm, data_dir):
    """Name of a set -> nDCG@10 x 100 of the command."""

    def score(name):
        flags = ["--tasks=beir", f"--beir={name}", f"--data_dir={data_dir}"]
        rows = command.main([str(minilm), *flags, f"--max_length={MAX_LENGTH}"])
        return next(row["value"] for row in rows if row["metric"] == "ndcg@10")

    return score


def test_scifact_scores_what_is_published(ndcg):
    # sentence-transformers' all-MiniLM-L6-v2 on BEIR's SciFact (MTEB): 64.5.
    assert ndcg("scifact") == pytest.approx(64.5, abs=0.3)


@pytest.mark.parametrize("name", ["cranfield", "cisi", "med", "npl", "cacm"])
def test_a_collection_scores_what_one_full_product_gives(ndcg, minilm, data_dir, name):
    beir = read_set(Path(data_dir) / "beir" / name, "test")
    encoder, tokenizer = load_encoder(str(minilm), max_length=MAX_LENGTH)
    encode = Encode(encoder, tokenizer)
    documents, queries = encode([*beir.corpus.values()]), encode([*beir.queries.values()])
    documents /= np.linalg.norm(documents, axis=1, keepdims=True)
    queries /= np.linalg.norm(queries, axis=1, keepdims=True)
    order = np.argsort(-(queries @ documents.T), axis=1, kind="stable")[:, :1000]
    names, run = [*beir.corpus], {}
    for query, best in zip(beir.queries, order, strict=True):
        run[query] = {names[index]: float(-rank) for rank, index in enumerate(best)}
    values = pytrec_eval.RelevanceEvaluator(beir.grades, {"ndcg_cut.10"}).evaluate(run)
    expected = 100 * np.mean([value["ndcg_cut_10"] for value in values.values()])
    assert ndcg(name) == pytest.approx(expected, abs=1e-6)


@pytest.fixture(scope="module")
def features(minilm, data_dir):
    """Task name -> split -> float32 features and labels."""
    encoder, tokenizer = load_encoder(str(minilm))
    encode = Encode(encoder, tokenizer)

    def of(name):
        task = next(task for task in tasks() if task.name == name)
        splits = task.load(data_dir).values()
        return [
            (encode([text for (text,) in part.texts]), np.array(part.labels)) for part in splits
        ]

    return of


def test_trec_equals_one_model_at_a_time(features):
    train, test = features("TREC")
    x, y = (np.concatenate(parts) for parts in zip(train, test, strict=True))
    rows = np.split(np.arange(len(y)), [len(train[1])])
    result = Judge(x, y, "test").crossed(*rows)
    assert (result.dev, result.test) == plain.crossed(MODES["test"], *train, *test)


def test_the_first_outer_split_of_mr_equals_one_model_at_a_time(features):
    [(x, y)] = features("MR")
    result = Judge(x, y, "test", outer=1).nested()
    assert (result.dev, result.test) == plain.nested(MODES["test"], x, y, outer=1)
