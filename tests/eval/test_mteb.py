"""An exported model in MTEB gives our figure: the folder is what sentence-transformers, and so MTEB, reads."""

import pytest

from eval.encode import Encode
from eval.sts import Pairs, read_columns, spearman
from models.encoder import SentenceEncoder, load_encoder
from models.loading import load_backbone, load_tokenizer

mteb = pytest.importorskip("mteb", reason="requirements-extra.txt has it")


def test_mteb_finds_our_spearman(tiny_bert, dev_file, tmp_path):
    from datasets import Dataset
    from mteb.abstasks.sts import AbsTaskSTS
    from mteb.abstasks.task_metadata import TaskMetadata
    from sentence_transformers import SentenceTransformer

    read = read_columns(dev_file, "score", "sentence1", "sentence2")
    # A sentence and itself have cosine 1 here, and 1 give or take float32's rounding where each is encoded anew.
    rows = [row for row in zip(read.left, read.right, read.gold, strict=True) if row[0] != row[1]]
    pairs = Pairs(*map(list, zip(*rows, strict=True)))

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
    encoder, tokenizer = load_encoder(str(tmp_path))
    ours = spearman(Encode(encoder, tokenizer, encoder.max_length), pairs)
    model = SentenceTransformer(str(tmp_path), device="cpu")
    result = mteb.evaluate(model, OwnPairs(), cache=None, encode_kwargs={"show_progress_bar": False})
    theirs = result.task_results[0].scores["test"][0]["cosine_spearman"]
    assert 100 * theirs == pytest.approx(ours, abs=1e-4)
