"""MTEB, which reads an export, gives our figure."""

import pytest

from models.encoder import SentenceEncoder
from models.loading import load_backbone, load_tokenizer
from tests.encoders import encode_of, unequal_pairs
from tests.eval.toys import spearman


def test_mteb_finds_our_spearman(tiny_bert, dev_file, tmp_path):
    mteb = pytest.importorskip("mteb", reason="requirements-extra.txt has it")
    from datasets import Dataset
    from mteb.abstasks.sts import AbsTaskSTS
    from mteb.abstasks.task_metadata import TaskMetadata
    from sentence_transformers import SentenceTransformer

    pairs = unequal_pairs(dev_file)

    class OwnPairs(AbsTaskSTS):
        metadata = TaskMetadata(
            name="OwnPairs",
            description="Graded pairs of this repository's tests.",
            dataset={"path": "none/none", "revision": "none"},
            type="STS",
            category="t2t",
            eval_splits=["test"],
            eval_langs=["eng-Latn"],
            main_score="cosine_spearman",
        )
        min_score = 0
        max_score = 5

        def load_data(self, num_proc=None, **_):
            columns = {"sentence1": pairs.left, "sentence2": pairs.right, "score": pairs.gold}
            self.dataset, self.data_loaded = {"test": Dataset.from_dict(columns)}, True

    SentenceEncoder(load_backbone(str(tiny_bert)), "avg", None, 64).save(str(tmp_path), load_tokenizer(str(tiny_bert)))
    ours = spearman(encode_of(tmp_path), pairs)
    model = SentenceTransformer(str(tmp_path), device="cpu")
    result = mteb.evaluate(model, OwnPairs(), cache=None, encode_kwargs={"show_progress_bar": False})
    theirs = result.task_results[0].scores["test"][0]["cosine_spearman"]
    assert 100 * theirs == pytest.approx(ours, abs=1e-4)
