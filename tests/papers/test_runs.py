"""One real run on the tiny model, and the scores of Figure 4 against a forward of their own."""

import json
import shutil

import numpy as np
import pytest
from safetensors.torch import load_file, save_file

import run_unsup
from common.errors import BadInput, CheckpointRefused
from common.files import sha256
from data.lines import content_hash
from eval.analyse.tokens import WITHOUT_TOKENS, AverageWithout, FrequentTokens, most_frequent
from eval.encode import Encode
from eval.sts import Pairs, correlation, cosines
from models.pooling import POOLINGS
from papers import runs
from papers.__main__ import main
from papers.plans import Choice, RunPlan
from papers.tasks import count_of
from tests.encoders import encode_of
from tests.eval.toys import write_stsb


@pytest.fixture
def data_dir(tmp_path, sentences):
    """STS-B dev of the published size."""
    rows = [(i % 6, sentences[i % 300], sentences[i * 7 % 300]) for i in range(1500)]
    return write_stsb(tmp_path / "data", rows, "dev")


def test_a_run_is_trained_scored_and_kept(tmp_path, tiny_bert, text_file, data_dir, monkeypatch):
    monkeypatch.chdir(tmp_path)
    started = []
    monkeypatch.setattr(runs, "launch", lambda script, argv: started.append(argv) or run_unsup.main(argv))
    argv = ["infocse-9", "--rows", "SimCSE, cls", "--backbone=mini", f"--model={tiny_bert}", "--seeds", "4",
            f"--train_file={text_file}", f"--data_dir={data_dir}", "--steps=2", "--float32"]  # fmt: skip
    [row] = main(argv)
    assert row["ours_runs"] == 1 and -100 <= row["ours"] <= 100
    assert row["verdict"] == "not comparable: other backbone, other text, other budget"
    facts = row["provenance"][4]
    assert facts["text"] == content_hash([text_file]) and facts["start"] == sha256(tiny_bert / "model.safetensors")
    assert facts["steps"] == 2 and set(facts["versions"]) >= {"torch", "transformers"}
    folder = tmp_path / facts["run"]
    assert json.loads((folder / "run.json").read_text())["best"]["value"] == pytest.approx(row["ours"], abs=0.01)
    assert not list(folder.glob("checkpoint-*")) and not list(folder.glob("*.part"))
    assert main(argv) == [row] and len(started) == 1


def test_a_finished_run_of_a_text_or_model_that_has_changed_is_refused(tmp_path, tiny_bert, text_file, data_dir,
                                                                      monkeypatch):  # fmt: skip
    monkeypatch.chdir(tmp_path)
    shutil.copytree(tiny_bert, "model")
    shutil.copy(text_file, "text.txt")
    monkeypatch.setattr(runs, "launch", lambda script, argv: run_unsup.main(argv))
    argv = ["infocse-9", "--rows", "SimCSE, cls", "--backbone=mini", "--model=model", "--seeds", "4",
            "--train_file=text.txt", f"--data_dir={data_dir}", "--steps=1", "--float32"]  # fmt: skip
    made = main(argv)

    def again(*flags):  # a command is a process: nothing that was read before is known
        runs.model_files.cache_clear()
        runs._text_hash.cache_clear()
        return main([*argv, *flags])

    text, weights = tmp_path / "text.txt", tmp_path / "model" / "model.safetensors"
    held = text.read_text()
    text.write_text(held + "One more line.\n")
    for flags in ((), ("--collect",)):
        with pytest.raises(CheckpointRefused, match=r"text: sha256 was \w+, now \w+"):
            again(*flags)
    text.unlink()
    assert again("--collect") == made
    text.write_text(held)
    tensors = load_file(weights)
    save_file({name: tensor + 1 for name, tensor in tensors.items()}, weights, {"format": "pt"})
    for flags in ((), ("--collect",)):
        with pytest.raises(CheckpointRefused, match="model_name_or_path: the files of model have changed"):
            again(*flags)
    shutil.rmtree(tmp_path / "model")
    assert again("--collect") == made


def test_figures_of_a_model_that_is_evaluated_as_it_is_are_of_its_files(tmp_path, tiny_bert):
    shutil.copytree(tiny_bert, tmp_path / "model")
    plan = RunPlan("untrained", {}, None, str(tmp_path / "model"), "avg", ())
    choice = Choice(runs=str(tmp_path / "runs"))
    plan.train(choice, 0)
    assert plan.finished(choice, 0)["model"] == str(tmp_path / "model")
    (tmp_path / "model" / "config.json").write_text("{}")
    runs.model_files.cache_clear()
    with pytest.raises(CheckpointRefused, match=r"the files of .* have changed"):
        plan.finished(choice, 0)


def test_missing_test_data_is_known_before_anything_is_trained(tmp_path, monkeypatch):
    monkeypatch.setattr(runs, "launch", lambda *_: pytest.fail("trained"))
    with pytest.raises(BadInput, match=r"sts-dev\.csv"):
        main(["infocse-4", f"--data_dir={tmp_path}", f"--runs={tmp_path}", f"--output={tmp_path}"])


def test_figure_4_is_the_mean_of_rounded_sets_without_the_tokens_frequent_in_sts_b(tiny_bert, sentences, monkeypatch):
    def pairs(start):
        left, right = sentences[start : start + 20], sentences[start + 20 : start + 40]
        return Pairs(left, right, [float(i % 6) for i in range(20)])

    sets = {"STS12": pairs(0), "STS-B": pairs(40)}
    monkeypatch.setattr(FrequentTokens, "load", lambda self, data_dir: sets)
    encode = encode_of(tiny_bert, "cls_before_pooler")
    rows = FrequentTokens((0, 3), POOLINGS["avg_top2"].pool).score(encode, "nowhere").rows
    common = most_frequent(encode.tokenizer(sets["STS-B"].left + sets["STS-B"].right)["input_ids"], 3)
    for row, count in zip(rows, (0, 3), strict=True):
        found = []
        for one in sets.values():
            module = AverageWithout(encode.module.backbone, 64, POOLINGS["avg_top2"].pool, common, (count,))
            left, right = (Encode(module, encode.tokenizer)(side) for side in (one.left, one.right))
            found.append(round(correlation(cosines(left, right), np.array(one.gold)), 2))
        assert row["value"] == pytest.approx(sum(found) / 2, abs=0.011)
        assert row["metric"] == f"spearman without {count} tokens" and row["n"] == 40
    assert rows[0]["value"] != rows[1]["value"]


def test_a_metric_s_number_of_tokens():
    assert count_of("spearman without 34 tokens") == 34
    for wrong in ("spearman without some tokens", "f1"):
        with pytest.raises(BadInput, match="unknown metric"):
            count_of(wrong)
    assert WITHOUT_TOKENS.format(0) == "spearman without 0 tokens"
