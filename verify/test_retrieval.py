"""Retrieval with a real checkpoint: a published figure, and classical collections against a plain computation."""

from pathlib import Path

import numpy as np
import pytest
import pytrec_eval

import eval.__main__ as command
from eval.encode import Encode
from eval.retrieval.beir import read_set
from models.encoder import load_encoder

MAX_LENGTH = 256  # of the published evaluation


@pytest.fixture
def ndcg(minilm, data_dir):
    """Name of a set -> nDCG@10 x 100 of the command."""

    def score(name):
        flags = ["--tasks", "beir", "--beir", name, "--max_length", str(MAX_LENGTH), "--data_dir", data_dir]
        (row,) = [row for row in command.main([str(minilm), *flags]) if row["metric"] == "ndcg@10"]
        return row["value"]

    return score


def test_scifact_scores_what_is_published(ndcg):
    # sentence-transformers' all-MiniLM-L6-v2 on BEIR's SciFact (MTEB): 64.5.
    assert ndcg("scifact") == pytest.approx(64.5, abs=0.3)


@pytest.mark.parametrize("name", ["cranfield", "cisi", "med", "npl", "cacm"])
def test_a_collection_scores_what_one_full_product_gives(ndcg, minilm, data_dir, name):
    one = read_set(Path(data_dir) / "beir" / name, "test")
    encoder, tokenizer = load_encoder(str(minilm), max_length=MAX_LENGTH)
    encode = Encode(encoder, tokenizer, MAX_LENGTH)
    documents, queries = encode(one.corpus.texts(0, len(one.corpus))), encode(list(one.queries.values()))
    documents /= np.linalg.norm(documents, axis=1, keepdims=True)
    queries /= np.linalg.norm(queries, axis=1, keepdims=True)
    order = np.argsort(-(queries @ documents.T), axis=1, kind="stable")[:, :1000]
    run = {q: {str(d): float(-rank) for rank, d in enumerate(best)} for q, best in zip(one.queries, order, strict=True)}
    judged = {query: {str(place): grade for place, grade in grades.items()} for query, grades in one.grades.items()}
    values = pytrec_eval.RelevanceEvaluator(judged, {"ndcg_cut.10"}).evaluate(run)
    expected = 100 * np.mean([value["ndcg_cut_10"] for value in values.values()])
    assert ndcg(name) == pytest.approx(expected, abs=1e-6)
