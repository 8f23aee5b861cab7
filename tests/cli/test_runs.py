"""Both scripts through their real `main`: results, artefacts, resume, refusals."""

import json
import math
import shutil
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file
from transformers import AutoModel, AutoModelForMaskedLM

import reproduce
import run_pretrain_aux
import run_sup
import run_unsup
from common.errors import BadInput, CheckpointRefused
from eval.encode import Encode
from eval.sts import merged, own_pairs, spearman
from models.encoder import load_encoder
from training.checkpoint import commit, owner
from training.registry import OLD_NAMES, method_names
from training.run import Run
from training.run_arguments import RunArguments
from training.trainer import EmbeddingTrainer


def same_weights(one, other):
    a, b = load_file(one), load_file(other)
    return a.keys() == b.keys() and all(torch.equal(a[name], b[name]) for name in a)


def script_main(method):
    return run_sup.main if method == "nli" else run_unsup.main


def history(folder):
    return [json.loads(line) for line in (folder / "log.jsonl").read_text().splitlines()]


def test_a_run_leaves_the_artefact_its_record_and_its_log(unsup, tmp_path, dev_file):
    run_unsup.main(unsup())
    run = tmp_path / "run"
    record = json.loads((run / "run.json").read_text())
    log = history(run)
    assert record["status"] == "finished"
    assert record["steps"] == 6
    scores = {line["step"]: line["eval_dev_spearman"] for line in log if "eval_dev_spearman" in line}
    assert set(scores) == {2, 4, 6}
    assert record["best"]["value"] == max(scores.values())
    assert scores[record["best"]["step"]] == record["best"]["value"]
    terms = [line for line in log if "contrastive" in line]
    assert [line["step"] for line in terms] == [1, 2, 3, 4, 5, 6]
    for line in terms:
        assert line["loss"] == pytest.approx(line["contrastive"] + 0.1 * line["aux_mlm"], rel=1e-4)
    assert {"eval_aux_mlm", "eval_aux_mlm_shuffled_cls", "eval_uniformity", "eval_mean_cosine"} <= set(log[-2])
    assert (run / "curves.png").read_bytes()[:4] == b"\x89PNG"
    assert (run / "best" / "model.safetensors").exists()
    assert same_weights(run / "best" / "model.safetensors", run / "model.safetensors")
    assert not list(run.rglob("training_args.bin"))
    _, info = AutoModel.from_pretrained(run, add_pooling_layer=False, output_loading_info=True)
    assert not info["missing_keys"]
    assert not info["unexpected_keys"]
    encoder, tokenizer = load_encoder(str(run))
    value = spearman(Encode(encoder, tokenizer, 64), merged(own_pairs(str(dev_file)).load(".")))
    assert value == pytest.approx(record["best"]["value"], abs=1e-9)


@pytest.mark.parametrize(
    "flags",
    [
        {},
        {"method": "simcse", "projection": "linear_tanh"},
        {"gradient_accumulation_steps": 2, "per_device_train_batch_size": 4},
        {"num_train_epochs": 3, "max_steps": -1, "per_device_train_batch_size": 100, "save_steps": 4},
        {"dataloader_num_workers": 1},
        {"bf16": "true"},
        {"packed": "false"},
        {"adamw": "transformers", "weight_decay": 0.01},
        {"chunk_size": 3},
        {"chunk_size": 3, "bf16": "true", "gradient_accumulation_steps": 2, "per_device_train_batch_size": 4},
    ],
    ids=[
        "infocse",
        "simcse",
        "accumulation",
        "second epoch",
        "worker",
        "bf16",
        "padded",
        "adamw",
        "chunks",
        "bf16 chunks",
    ],
)
def test_a_resumed_run_equals_the_uninterrupted_one_bit_for_bit(unsup, tmp_path, flags):
    run_unsup.main(unsup("whole", **flags))
    first = sorted((tmp_path / "whole").glob("checkpoint-*"), key=lambda p: int(p.name.split("-")[1]))[0]
    shutil.copytree(tmp_path / "whole", tmp_path / "cut")
    for folder in (tmp_path / "cut").glob("checkpoint-*"):
        if folder.name != first.name:
            shutil.rmtree(folder)
    record = json.loads((tmp_path / "cut" / "run.json").read_text())
    (tmp_path / "cut" / "model.safetensors").unlink()
    if record["best"]["step"] > int(first.name.split("-")[1]):  # the rest of the run has to find it again
        (tmp_path / "cut" / "best" / "model.safetensors").write_bytes(b"to be written again")
    (tmp_path / "cut" / "run.json").write_text(json.dumps(record | {"status": "running"}))
    torch.manual_seed(99)  # whatever the process did before must not matter

    steps = record["steps"]
    assert int(first.name.split("-")[1]) < steps
    run_unsup.main(unsup("cut", **flags))
    last = f"checkpoint-{steps}"
    assert same_weights(*(tmp_path / run / last / "model.safetensors" for run in ("whole", "cut")))
    tail = [line for line in history(tmp_path / "whole") if "contrastive" in line or "eval_uniformity" in line]
    again = [line for line in history(tmp_path / "cut") if "contrastive" in line or "eval_uniformity" in line]
    assert tail == again
    assert same_weights(*(tmp_path / run / "model.safetensors" for run in ("whole", "cut")))
    assert not same_weights(first / "model.safetensors", tmp_path / "whole" / last / "model.safetensors")


def _lose(best):
    shutil.rmtree(best)


def _damage(best):
    (best / "model.safetensors").write_bytes(bytes(100))


def _exchange(best):
    """A best model of the same run, of an earlier step: a copy that was laid back."""
    run_id = owner(best)
    (best / "manifest.json").unlink()
    (best / "best.json").write_text(json.dumps({"step": 1, "value": -100.0}))
    best.rename(best.with_name("copy"))
    commit(best.with_name("copy"), best, run_id)


def _take_another(best):
    """The best model of another run, of a later step."""
    (best / "best.json").write_text(json.dumps({"step": 99, "value": 100.0}))
    (best / "manifest.json").unlink()
    best.rename(best.with_name("copy"))
    commit(best.with_name("copy"), best, "another")


@pytest.mark.parametrize(
    ("harm", "said"),
    [(_lose, "the best model is gone"), (_damage, "has changed since"), (_exchange, r"scored -100\.0 at step 1, but"),
     (_take_another, "belongs to another run")],
)  # fmt: skip
def test_a_lost_best_model_is_refused_before_the_first_step(unsup, tmp_path, monkeypatch, harm, said):
    run, flags = tmp_path / "run", {"eval_steps": 1, "save_steps": 5}
    run_unsup.main(unsup(**flags))
    shutil.rmtree(run / "checkpoint-6")
    record = json.loads((run / "run.json").read_text())
    assert record["best"]["step"] <= 5, "else the resumed run would find it again"
    (run / "run.json").write_text(json.dumps(record | {"status": "running"}))
    harm(run / "best")
    monkeypatch.setattr(EmbeddingTrainer, "train", lambda *_, **__: pytest.fail("training went on"))
    with pytest.raises(CheckpointRefused, match=said):
        run_unsup.main(unsup(**flags))


def _forge(checkpoint, name, content):
    """Another file in a checkpoint, with a manifest that fits."""
    run_id = owner(checkpoint)
    (checkpoint / "manifest.json").unlink()
    (checkpoint / name).unlink()
    if isinstance(content, bytes):
        (checkpoint / name).write_bytes(content)
    else:
        torch.save(content, checkpoint / name)
    checkpoint.rename(checkpoint.with_name("copy"))
    commit(checkpoint.with_name("copy"), checkpoint, run_id)


STRANGE = b'{"global_step": 3, "max_steps": 6, "x": 1}'


class Evil:
    def __init__(self, path):
        self.path = str(path)

    def __reduce__(self):
        return (open, (self.path, "w"))


@pytest.fixture(scope="module")
def cut(tmp_path_factory):
    """A place for a stopped run that many tests copy."""
    return tmp_path_factory.mktemp("cut") / "run"


@pytest.mark.parametrize(
    ("name", "content"),
    [
        *((name, "evil") for name in ("optimizer.pt", "scheduler.pt", "rng_state.pth")),
        *((name, content) for name in ("optimizer.pt", "rng_state.pth") for content in (b"", b"\x80\x02.", {"a": 1})),
        ("model.safetensors", b"nothing"),
        *(("trainer_state.json", content) for content in (b"[]", b"{}", b"{", STRANGE)),
    ],
)  # fmt: skip
def test_a_forged_checkpoint_is_refused_in_one_line_and_its_code_not_run(unsup, cut, tmp_path, name, content):
    flags = {"method": "simcse", "dev": "none", "cache_dir": cut.with_name("cache")}
    if not cut.exists():
        run_unsup.main(unsup(**flags, output_dir=cut))
        shutil.rmtree(cut / "checkpoint-6")
        record = json.loads((cut / "run.json").read_text())
        (cut / "run.json").write_text(json.dumps(record | {"status": "running"}))
    run = shutil.copytree(cut, tmp_path / "run")
    _forge(run / "checkpoint-3", name, Evil(tmp_path / "ran") if content == "evil" else content)
    with pytest.raises(CheckpointRefused, match="checkpoint-3") as caught:
        run_unsup.main(unsup(**flags))
    assert "\n" not in str(caught.value)
    assert not (tmp_path / "ran").exists()
    assert [path.name for path in run.glob("checkpoint-*")] == ["checkpoint-3"]


def test_stage_one_resumed_equals_the_uninterrupted_run_bit_for_bit(aux, tmp_path):
    run_pretrain_aux.main(aux("whole"))
    shutil.copytree(tmp_path / "whole", tmp_path / "cut")
    shutil.rmtree(tmp_path / "cut" / "checkpoint-6")
    record = json.loads((tmp_path / "cut" / "run.json").read_text())
    (tmp_path / "cut" / "run.json").write_text(json.dumps(record | {"status": "running"}))
    for name in ("model.safetensors", "aux_head.safetensors"):
        (tmp_path / "cut" / name).unlink()
    run_pretrain_aux.main(aux("cut"))
    for name in ("model.safetensors", "aux_head.safetensors"):
        assert same_weights(tmp_path / "whole" / name, tmp_path / "cut" / name)


def test_stage_one_feeds_stage_two(aux, unsup, tmp_path):
    run_pretrain_aux.main(aux())
    log = history(tmp_path / "aux")
    assert {"eval_mlm", "eval_aux_mlm", "eval_aux_mlm_shuffled_cls"} <= {name for line in log for name in line}
    for line in log:
        if "mlm" in line:
            assert line["loss"] == pytest.approx(line["mlm"] + line["aux_mlm"], rel=1e-4)
    _, info = AutoModelForMaskedLM.from_pretrained(tmp_path / "aux", output_loading_info=True)
    assert not info["missing_keys"]
    run_unsup.main(unsup(model_name_or_path=tmp_path / "aux"))
    assert json.loads((tmp_path / "run" / "run.json").read_text())["status"] == "finished"


def test_a_head_that_reads_the_clean_text_feeds_stage_two(aux, unsup, tmp_path):
    options = {"aux_cls": "clean", "aux_mask_rate": 0.5, "head_init": "encoder_top", "bow_weight": 0.1, "skip_from": 0}
    run_pretrain_aux.main(aux(**options))
    seen = {name for line in history(tmp_path / "aux") for name in line}
    assert {"eval_aux_mlm", "eval_aux_mlm_shuffled_cls", "eval_bow", "tokens"} <= seen
    run_unsup.main(unsup(model_name_or_path=tmp_path / "aux", skip_from=0))
    assert json.loads((tmp_path / "run" / "run.json").read_text())["status"] == "finished"


def test_a_plain_masked_language_model_has_no_head_for_stage_two(aux, unsup, tmp_path):
    run_pretrain_aux.main(aux(head_layers=0))
    assert not (tmp_path / "aux" / "aux_head.safetensors").exists()
    with pytest.raises(BadInput, match="no pre-trained auxiliary head"):
        run_unsup.main(unsup(model_name_or_path=tmp_path / "aux"))


def test_a_start_that_had_a_head_leaves_no_word_of_it_in_a_plain_model(aux, stage_one_folder, tmp_path):
    start = shutil.copytree(stage_one_folder, tmp_path / "start")
    config = json.loads((start / "config.json").read_text())
    assert {"skip_from", "head_layers"} <= config.keys()
    run_pretrain_aux.main(aux(model_name_or_path=start, head_layers=0))
    assert not {"skip_from", "head_layers"} & json.loads((tmp_path / "aux" / "config.json").read_text()).keys()


@pytest.mark.parametrize(("rows", "trained_on", "held"), [(150, 150, 0), (999, 999, 0), (1050, 1040, 10)])
def test_examples_are_held_out_only_where_enough_of_them_can_be(
    rows, trained_on, held, unsup, sentences, tmp_path, capsys
):
    text = tmp_path / "text.txt"
    text.write_text("".join(f"{sentences[n % 300]} {sentences[n // 300]}\n" for n in range(rows)))
    run_unsup.main(unsup(method="simcse", train_file=text, dev="none", max_steps=1))
    [seen] = [line for line in history(tmp_path / "run") if "eval_uniformity" in line]
    assert all(math.isfinite(value) for value in seen.values())
    run_unsup.main(unsup(output="plan", method="simcse", train_file=text, dev="none", max_steps=1, dry_run="true"))
    said = f", {held} held out" if held else ""
    assert f"text: {trained_on:,} examples{said}, 1 steps of 8" in capsys.readouterr().out


def test_a_batch_beyond_the_examples_says_what_is_held_out(unsup, tmp_path):
    text = tmp_path / "text.txt"
    text.write_text("".join(f"A dog watches the river {number} times.\n" for number in range(1000)))
    with pytest.raises(BadInput, match="990 examples, with 10 held out, are fewer than one batch of 995 x 1"):
        run_unsup.main(unsup(method="simcse", train_file=text, dev="none", per_device_train_batch_size=995))


@pytest.mark.parametrize(
    ("flags", "named"),
    [
        ({"aux_mask_rate": 1.5}, "--aux_mask_rate 1.5"),
        ({"aux_mask_rate": 0.5, "head_layers": 0}, "--aux_mask_rate"),
        ({"aux_cls": "clean", "head_layers": 0}, "--aux_cls clean"),
    ],
)
def test_options_of_the_head_that_nothing_would_read_are_refused(aux, flags, named):
    with pytest.raises(BadInput, match=named):
        run_pretrain_aux.main(aux(**flags))


def test_from_scratch_learns_a_vocabulary_and_a_model(aux, tmp_path, text_file):
    from transformers import BertConfig

    BertConfig(
        hidden_size=32, num_hidden_layers=4, num_attention_heads=4, intermediate_size=64, max_position_embeddings=64
    ).save_pretrained(tmp_path / "config")
    flags = [f for f in aux(max_steps=2, save_steps=2) if not f.startswith("--model_name_or_path")]
    run_pretrain_aux.main([*flags, f"--config_name={tmp_path / 'config'}", "--vocabulary_size=300"])
    config = AutoModelForMaskedLM.from_pretrained(tmp_path / "aux").config
    assert config.vocab_size <= 300
    assert (config.skip_from, config.head_layers) == (2, 2)


def test_a_finished_run_is_left_alone(unsup, tmp_path):
    run_unsup.main(unsup(max_steps=2))
    before = {path: path.stat().st_mtime_ns for path in (tmp_path / "run").rglob("*")}
    run_unsup.main(unsup(max_steps=2))
    assert {path: path.stat().st_mtime_ns for path in (tmp_path / "run").rglob("*")} == before


def _zeroed(path):
    path.write_bytes(bytes(path.stat().st_size))


@pytest.mark.parametrize("older", [False, True])
@pytest.mark.parametrize(("harm", "said"), [(Path.unlink, "is missing"), (_zeroed, "has changed since|not a whole")])
def test_a_finished_run_whose_result_is_gone_is_refused(unsup, tmp_path, harm, said, older):
    run_unsup.main(unsup(method="simcse", max_steps=2))
    run = tmp_path / "run"
    if older:
        record = json.loads((run / "run.json").read_text())
        del record["result"]
        (run / "run.json").write_text(json.dumps(record))
    harm(run / "model.safetensors")
    before = {path: path.stat().st_mtime_ns for path in run.rglob("*")}
    with pytest.raises(CheckpointRefused, match=said):
        run_unsup.main(unsup(method="simcse", max_steps=2))
    with pytest.raises((CheckpointRefused, BadInput), match=f"{said}|has no model.safetensors"):
        reproduce.main([str(run)])
    assert {path: path.stat().st_mtime_ns for path in run.rglob("*")} == before


def test_a_finished_run_is_its_result_whatever_is_laid_beside_it(unsup, tmp_path, caplog):
    run_unsup.main(unsup(method="simcse", max_steps=2))
    run = tmp_path / "run"
    record = json.loads((run / "run.json").read_text())
    assert {"model.safetensors", "config.json", "tokenizer.json", "1_Pooling/config.json"} <= record["result"].keys()
    (run / "scores.json").write_text("[]")
    (run / "README.md").write_text("a card")
    shutil.rmtree(run / "best")
    run_unsup.main(unsup(method="simcse", max_steps=2))
    del record["result"]
    (run / "run.json").write_text(json.dumps(record))
    caplog.clear()
    run_unsup.main(unsup(method="simcse", max_steps=2))
    assert "no sha256 of its result" in caplog.text


def test_other_settings_in_the_same_folder_are_refused_by_name(unsup, tmp_path):
    run_unsup.main(unsup(max_steps=2))
    with pytest.raises(CheckpointRefused, match=r"temperature: 0\.05 there, 0\.1 now"):
        run_unsup.main(unsup(max_steps=2, temperature=0.1))
    with pytest.raises(CheckpointRefused, match="max_steps"):
        run_unsup.main(unsup(max_steps=4))
    run_unsup.main(unsup(max_steps=2, logging_steps=5, save_steps=1))  # may differ


def test_what_settings_name_is_compared_by_content(unsup, tmp_path, stage_one_folder, text_file, dev_file):
    start, dev, text = tmp_path / "start", tmp_path / "dev.tsv", tmp_path / "same.txt"
    shutil.copytree(stage_one_folder, start)
    shutil.copy(dev_file, dev)
    shutil.copy(text_file, text)
    flags = {"model_name_or_path": start, "dev_file": dev, "max_steps": 2}
    run_unsup.main(unsup(**flags))
    run_unsup.main(unsup(**flags, train_file=text, cache_dir=tmp_path / "new"))  # the same text by another name
    assert json.loads((tmp_path / "run" / "run.json").read_text())["text_files"] == [text_file.name]
    lines = dev.read_text().splitlines()
    dev.write_text("\n".join([*lines[:-1], lines[1]]) + "\n")
    with pytest.raises(CheckpointRefused, match="dev_pairs: "):
        run_unsup.main(unsup(**flags))
    shutil.copy(dev_file, dev)
    config = json.loads((start / "config.json").read_text())
    (start / "config.json").write_text(json.dumps(config | {"hidden_dropout_prob": 0.5}))
    with pytest.raises(CheckpointRefused, match=r"contents: .*config\.json"):
        run_unsup.main(unsup(**flags))


def test_a_record_keeps_what_the_run_was_trained_with_before_it_was_resumed(unsup, tmp_path, caplog):
    run_unsup.main(unsup(max_steps=4))
    path = tmp_path / "run" / "run.json"
    record = json.loads(path.read_text())
    versions = record["versions"] | {"torch": "1.0"}
    path.write_text(json.dumps(record | {"status": "running", "commit": "old", "versions": versions}))
    shutil.rmtree(tmp_path / "run" / "checkpoint-4")
    run_unsup.main(unsup(max_steps=4))
    [before] = json.loads(path.read_text())["earlier_starts"]
    assert (before["commit"], before["versions"]) == ("old", versions)
    assert "the run was begun with torch 1.0" in caplog.text


@pytest.mark.parametrize(
    ("method", "flags", "most"),
    [("infocse", {}, 2), ("esimcse", {}, 2), ("mirror_bert", {}, 2), ("mirror_bert", {"span_tokens": 0}, 2),
     ("consert", {"view_1": "none", "view_2": "none"}, 2), ("moco", {}, 2), ("sg_opt", {}, 1), ("ct", {}, 1),
     ("is_bert", {}, 1)],
)  # fmt: skip
def test_more_columns_than_a_method_reads_are_refused(unsup, tmp_path, sentences, method, flags, most):
    path, columns = tmp_path / "rows.tsv", most + 1
    path.write_text("".join("\t".join(sentences[i : i + columns]) + "\n" for i in range(60)), encoding="utf-8")
    with pytest.raises(BadInput, match=f"--columns {columns}: this method reads {most} of a row"):
        run_unsup.main(unsup(method=method, train_file=path, columns=columns, **flags))


@pytest.mark.parametrize("method", ["moco", "esimcse", "diffcse", "infocse_rtd"])
def test_a_head_wider_than_the_encoder_is_refused_where_both_meet(unsup, method):
    with pytest.raises(BadInput, match="--projection wide_mlp: this method needs vectors of the encoder's width"):
        run_unsup.main(unsup(method=method, projection="wide_mlp"))


def test_equal_views_without_dropout_are_said(unsup, caplog):
    for dropout, said in ((0.1, False), (0, True)):
        caplog.clear()
        run_unsup.main(unsup(f"run-{dropout}", method="simcse", dropout=dropout, max_steps=1, dev="none"))
        assert ("equal views give one and the same vector" in caplog.text) is said


def test_the_second_column_is_shown_as_the_second_view_is(unsup, tmp_path, sentences):
    path = tmp_path / "rows.tsv"
    path.write_text("".join("\t".join(sentences[i : i + 2]) + "\n" for i in range(60)), encoding="utf-8")
    flags = {"method": "esimcse", "train_file": path, "columns": 2, "max_steps": 2}
    run_unsup.main(unsup("repeated", **flags))
    run_unsup.main(unsup("plain", **flags, repeat_rate=0))
    assert not same_weights(*(tmp_path / run / "checkpoint-2" / "model.safetensors" for run in ("repeated", "plain")))


def test_more_steps_are_another_run_unless_the_learning_rate_is_constant(unsup, tmp_path):
    flags = {"method": "simcse", "lr_scheduler_type": "constant", "dev": "none"}
    run_unsup.main(unsup("whole", **flags))
    run_unsup.main(unsup("longer", **flags | {"max_steps": 3}))
    run_unsup.main(unsup("longer", **flags))
    assert same_weights(*(tmp_path / run / "model.safetensors" for run in ("whole", "longer")))
    with pytest.raises(CheckpointRefused, match="max_steps: 6 there, 3 now"):
        run_unsup.main(unsup("longer", **flags | {"max_steps": 3}))
    with pytest.raises(CheckpointRefused, match=r"\(seed: 42 there, 1 now\)"):
        run_unsup.main(unsup("longer", **flags | {"max_steps": 9, "seed": 1}))


def test_a_longer_run_is_another_one_where_the_shorter_looked_for_its_best_model_at_an_odd_step(unsup, tmp_path,
                                                                                              dev_file):  # fmt: skip
    flags = {"method": "simcse", "lr_scheduler_type": "constant", "eval_steps": 2}
    run_unsup.main(unsup("run", **flags | {"max_steps": 3}))
    with pytest.raises(CheckpointRefused, match="max_steps: 3 there, 6 now"):
        run_unsup.main(unsup("run", **flags))


def test_the_best_checkpoint_may_be_the_only_one(unsup, tmp_path):
    """Where a step that is saved is the best so far, the stock Trainer would look for its checkpoint at the end."""
    run_unsup.main(unsup(method="simcse", save_total_limit=1, eval_steps=2, save_steps=2, max_steps=4))
    run = json.loads((tmp_path / "run" / "run.json").read_text())
    assert run["status"] == "finished" and [path.name for path in (tmp_path / "run").glob("checkpoint-*")] == [
        "checkpoint-4"]  # fmt: skip
    state = json.loads((tmp_path / "run" / "checkpoint-4" / "trainer_state.json").read_text())
    assert state["best_metric"] == run["best"]["value"]
    assert state["best_model_checkpoint"] is None


def test_a_resumed_run_saves_and_logs_as_often_as_it_is_told_now(unsup, tmp_path):
    flags = {"method": "simcse", "dev": "none", "save_total_limit": 9}
    run_unsup.main(unsup(**flags, save_steps=2, logging_steps=100))
    for step in (4, 6):
        shutil.rmtree(tmp_path / "run" / f"checkpoint-{step}")
    record = json.loads((tmp_path / "run" / "run.json").read_text())
    (tmp_path / "run" / "run.json").write_text(json.dumps(record | {"status": "running"}))
    run_unsup.main(unsup(**flags, save_steps=1, logging_steps=1))
    assert sorted(path.name[-1] for path in (tmp_path / "run").glob("checkpoint-*")) == ["2", "3", "4", "5", "6"]
    assert [line["step"] for line in history(tmp_path / "run") if "contrastive" in line] == [3, 4, 5, 6]


@pytest.mark.parametrize("flags", [{}, {"dry_run": "true"}], ids=["run", "dry run"])
@pytest.mark.parametrize("method", method_names())
def test_a_batch_of_one_is_refused_before_the_run_begins(unsup, tmp_path, method, flags):
    said = "of 1 sentences 0 are left" if method == "ct" else "a batch of one sentence has no negatives"
    with pytest.raises(BadInput, match=said):
        script_main(method)(unsup(method=method, per_device_train_batch_size=1, **flags))
    assert not (tmp_path / "run").exists()


def test_a_loss_that_compares_no_sentences_takes_a_batch_of_one(unsup, tmp_path):
    flags = {"per_device_train_batch_size": 1, "max_steps": 1, "contrastive_weight": 0}
    run_unsup.main(unsup("infocse", projection="none", **flags))
    run_sup.main(unsup("nli", "nli", projection="none", **flags))
    assert (tmp_path / "infocse" / "scores.json").exists() and (tmp_path / "nli" / "scores.json").exists()


@pytest.mark.parametrize("flags", [{}, {"dry_run": "true"}], ids=["run", "dry run"])
@pytest.mark.parametrize("method", ["consert", "nli"])
def test_views_that_change_an_unknown_backbone_are_refused_before_the_run_begins(unsup, tmp_path, bert_tokenizer,
                                                                                 method, flags):  # fmt: skip
    from transformers import DistilBertConfig, DistilBertModel

    DistilBertModel(DistilBertConfig(vocab_size=len(bert_tokenizer), dim=32, n_layers=1, n_heads=4, hidden_dim=64,
                                     max_position_embeddings=64)).save_pretrained(tmp_path / "distil")  # fmt: skip
    bert_tokenizer.save_pretrained(tmp_path / "distil")
    view = {"view_2": "none"} if method == "nli" else {}  # beside its adversarial one
    with pytest.raises(BadInput, match="--view_1, --view_2: can change the embeddings of bert, "):
        script_main(method)(unsup(method=method, model_name_or_path=tmp_path / "distil", **view, **flags))
    assert not (tmp_path / "run").exists()


def test_the_launcher_s_precision_must_be_that_of_the_flags(unsup, tmp_path, monkeypatch):
    monkeypatch.setenv("ACCELERATE_MIXED_PRECISION", "bf16")
    with pytest.raises(BadInput, match="the launcher asks for mixed precision 'bf16' and the flags for 'no'"):
        run_unsup.main(unsup(method="simcse"))
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize(("flags", "said"), [({"mask_rate": 15}, "--mask_rate 15.0"), ({"mask_rate": "nan"}, "nan"),
                                             ({"head_layers": -1}, "--head_layers -1")])  # fmt: skip
def test_stage_one_refuses_what_stage_two_does(aux, flags, said):
    with pytest.raises(BadInput, match=said):
        run_pretrain_aux.main(aux(**flags))


def test_evaluating_or_not_gives_the_same_weights(unsup, tmp_path):
    run_unsup.main(unsup("often", eval_steps=1))
    run_unsup.main(unsup("rare", eval_steps=100))
    paths = [tmp_path / run / "checkpoint-6" / "model.safetensors" for run in ("often", "rare")]
    assert same_weights(*paths)


def test_weight_zero_trains_what_simcse_trains_bit_for_bit(unsup, tmp_path):
    run_unsup.main(unsup("info", aux_weight=0))
    run_unsup.main(unsup("sim", method="simcse"))
    paths = [tmp_path / run / "checkpoint-6" / "model.safetensors" for run in ("info", "sim")]
    assert same_weights(*paths)


def test_without_a_dev_task_the_last_model_is_the_result(unsup, tmp_path):
    run_unsup.main(unsup(dev="none"))
    record = json.loads((tmp_path / "run" / "run.json").read_text())
    assert "best" not in record
    assert not (tmp_path / "run" / "best").exists()
    last = load_file(tmp_path / "run" / "checkpoint-6" / "model.safetensors")
    for name, value in load_file(tmp_path / "run" / "model.safetensors").items():
        assert torch.equal(value, last[f"encoder.backbone.{name}"])


def test_rows_of_two_and_three_sentences_train(unsup, tmp_path, sentences):
    for columns in (2, 3):
        rows = ["\t".join(sentences[i : i + columns]) for i in range(0, 60, columns)]
        path = tmp_path / f"{columns}.tsv"
        path.write_text("\n".join(rows) + "\n", encoding="utf-8")
        run_unsup.main(unsup(f"run{columns}", train_file=path, columns=columns, method="simcse", max_steps=2))
    log = history(tmp_path / "run3")
    assert log[0]["contrastive"] > 0


def test_dry_run_prints_the_plan_and_writes_no_run(unsup, aux, tmp_path, capsys, monkeypatch):
    (tmp_path / "temporary").mkdir()
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path / "temporary"))
    run_unsup.main([*unsup(), "--dry_run"])
    run_pretrain_aux.main([*aux(), "--dry_run"])
    printed = capsys.readouterr().out
    for word in ("masked_input_ids (2, 8,", "contrastive", "aux_mlm", "6 steps of 8", "hidden_dropout_prob 0.1"):
        assert word in printed
    assert not (tmp_path / "run").exists()
    assert not (tmp_path / "aux").exists()
    assert not [*(tmp_path / "temporary").glob("dry-run-*")]


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        ({"method": "simsce"}, "choose one of consert, .*infocse, .*simcse"),
        ({"per_device_train_batch_size": 5000}, "fewer than one batch"),
        ({"chunk_size": -1}, "--chunk_size -1"),
        ({"aux_weight": -1}, "--aux_weight -1.0: must be 0 or more"),
        ({"method": "consert", "temperature": 0}, "--temperature 0.0: must be above 0"),
        ({"method": "s_simcse", "rate_values": 1.5}, "--rate_values 1.5: must be from 0 to below 1"),
        ({"pooling": "cls", "projection": "none"}, "keeps the projection head"),
        ({"pooling": "max"}, "pooling 'max' is unknown"),
        ({"projection": "mlp"}, "projection 'mlp' is unknown"),
        ({"train_file": "nowhere.txt"}, "nowhere.txt"),
        ({"model_name_or_path": "/nowhere"}, "/nowhere"),
        ({"test_tasks": "STS99"}, "STS99"),
        ({"skip_from": 9, "aux_init": "random"}, "--skip_from 9"),
        ({"learning_rate": "fast"}, "learning_rate"),
        ({"temprature": 0.1}, "did you mean '--temperature'"),
        ({"temp": 0.1}, "here it is --temperature"),
        ({"method": "simcse", "skip_from": 6}, "a flag of --method infocse, infocse_rtd"),
        ({"pooling": "cls", "contrastive_weight": 0}, "no loss trains"),
        ({"hard_negative_weight": 1}, "--hard_negative_weight: hard negatives are the third"),
        ({"method": "moco", "hard_negative_weight": 1}, "--hard_negative_weight: hard negatives are the third"),
        ({"push_to_hub": "true"}, "--push_to_hub: would upload"),
        ({"hub_token": "hf_secret"}, "--hub_token: would be written"),
        ({"eval_strategy": "no"}, "--eval_strategy no: "),
        ({"gradient_checkpointing": "true"}, "--gradient_checkpointing: use --chunk_size"),
        ({"metric_for_best_model": "loss"}, "--metric_for_best_model: "),
        ({"accelerator_config": "nope.json"}, "--accelerator_config: how batches are dealt"),
        ({"activation_checkpointing": "true"}, "--activation_checkpointing: use --chunk_size"),
        ({"data_seed": 7}, "--data_seed: --seed decides"),
        ({"label_smoothing_factor": 0.1}, "--label_smoothing_factor: "),
        ({"train_sampling_strategy": "group_by_length"}, "--train_sampling_strategy group_by_length: is always random"),
        ({"dataloader_in_order": "false"}, "--dataloader_in_order False: is always true"),
        ({"dataloader_num_workers": 1, "dataloader_persistent_workers": "true"}, "--dataloader_persistent_workers: "),
        ({"save_strategy": "best"}, "--save_strategy best: "),
        ({"lr_scheduler_type": "reduce_lr_on_plateau"}, "--lr_scheduler_type .*plateau: would follow the dev score"),
        ({"lr_scheduler_type": "warmup_stable_decay"}, "--lr_scheduler_type .*decay --lr_scheduler_kwargs None: "),
        ({"lr_scheduler_kwargs": '{"nothing": 1}'}, "--lr_scheduler_kwargs .'nothing': 1.: "),
        ({"optim_args": "foo"}, "--optim_args foo: name=value"),
        ({"optim": "schedule_free_adamw"}, "--optim schedule_free_adamw: "),
        ({"optim": "sgd", "adamw": "transformers"}, "--adamw transformers: is an optimizer of its own"),
        ({"optim": "adamw_torch_8bit", "adamw": "transformers"}, "--adamw transformers: is an optimizer of its own"),
        ({"include_num_input_tokens_seen": "true"}, "--include_num_input_tokens_seen: every logged line"),
        ({"fp16": "true"}, "--fp16: is not computed on a CPU"),
        ({"eval_on_start": "true"}, "--eval_on_start: "),
        ({"resume_from_checkpoint": "x"}, "--resume_from_checkpoint: the same command"),
        ({"cache_dir": "/dev/null/x"}, "--cache_dir /dev/null/x: cannot be a folder"),
        ({"output_dir": "/dev/null/x"}, "--output_dir /dev/null/x: no folder can be there"),
        ({"output_dir": "n" * 300}, "--output_dir n+: no folder can be there .File name too long"),
    ],
)
def test_bad_configuration_is_refused_by_name_before_any_work(unsup, tmp_path, flags, message):
    with pytest.raises(BadInput, match=message):
        run_unsup.main(unsup(**flags))
    assert not (tmp_path / "run").exists()


TOKEN = "hf_" + "aB3" * 11


@pytest.mark.parametrize("flags", [["--run_name", TOKEN], [f"--run_name=my-{TOKEN}"], ["--report_to", "none", TOKEN],
                                   ["--config", "CONFIG"], [f"--{TOKEN}=1"]])  # fmt: skip
def test_a_token_of_the_hub_is_refused_and_neither_shown_nor_written(unsup, tmp_path, flags, capfd):
    (tmp_path / "config.yaml").write_text(f"run_name: {TOKEN}\n")
    flags = [str(tmp_path / "config.yaml") if word == "CONFIG" else word for word in flags]
    with pytest.raises(
        BadInput, match="looks like a token of the hub, and would be written down; set HF_TOKEN"
    ) as told:
        run_unsup.main([*unsup(), *flags])
    assert TOKEN not in str(told.value) + "".join(capfd.readouterr())
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize(("argv", "flag"), [(["--method", "esimcse"], "--repeat_unit"), ([], "--aux_weight")])
@pytest.mark.parametrize("ask", ["-h", "--help"])
def test_help_shows_the_flags_of_the_method_that_is_named(argv, flag, ask, capsys):
    with pytest.raises(SystemExit):
        run_unsup.main([*argv, ask])
    said = capsys.readouterr().out
    assert [name for name in ("--repeat_unit", "--aux_weight") if name in said] == [flag]


def test_a_method_that_is_not_named_is_asked_for():
    with pytest.raises(BadInput, match="--method is missing: choose one of consert, "):
        run_unsup.main(["--methd", "simcse"])


def test_old_names_are_those_of_the_guide():
    lines = Path("docs/from_the_old_repositories.md").read_text(encoding="utf-8").splitlines()
    for old, new in OLD_NAMES.items():
        assert any(f"--{old}" in line.split("|")[1] and new in line.split("|")[2] for line in lines if "|" in line), old


def test_stage_one_needs_exactly_one_start(aux):
    with pytest.raises(BadInput, match="give one of"):
        run_pretrain_aux.main(aux(config_name="x"))


def test_a_folder_of_somebody_else_is_not_touched(unsup, tmp_path):
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / "thesis.txt").write_text("mine")
    with pytest.raises(BadInput, match="not empty"):
        run_unsup.main(unsup())
    assert [path.name for path in (tmp_path / "run").iterdir()] == ["thesis.txt"]


def test_a_loss_that_is_not_finite_stops_the_run_and_exports_nothing(unsup, tmp_path, stage_one_folder):
    from safetensors.torch import save_file

    from common.errors import NonFinite

    broken = tmp_path / "broken"
    shutil.copytree(stage_one_folder, broken)
    tensors = load_file(broken / "model.safetensors")
    tensors["bert.embeddings.word_embeddings.weight"][50:] = 3e38  # a number, whose square is none
    save_file(tensors, broken / "model.safetensors", metadata={"format": "pt"})
    with pytest.raises(NonFinite):
        run_unsup.main(unsup(model_name_or_path=broken))
    assert not (tmp_path / "run" / "model.safetensors").exists()


def test_collapse_is_noticed_and_said(unsup, tmp_path, stage_one_folder, caplog):
    from safetensors.torch import save_file

    flat = tmp_path / "flat"
    shutil.copytree(stage_one_folder, flat)
    tensors = load_file(flat / "model.safetensors")
    for name in tensors:
        if "layer.3.output.LayerNorm.weight" in name:
            tensors[name] *= 0
        if "layer.3.output.LayerNorm.bias" in name:
            tensors[name] += 1
    save_file(tensors, flat / "model.safetensors", metadata={"format": "pt"})
    run_unsup.main(unsup(model_name_or_path=flat, max_steps=1, learning_rate="1e-9", method="simcse"))
    assert "collapsed" in caplog.text


def test_a_tracker_that_is_not_there_is_refused_before_the_run_begins(unsup, tmp_path):
    with pytest.raises(BadInput, match="--report_to clearml: not installed"):
        run_unsup.main(unsup(method="simcse", report_to="clearml"))
    assert not (tmp_path / "run").exists()


def test_a_dev_file_beside_no_dev_score_is_a_contradiction(unsup, dev_file):
    with pytest.raises(BadInput, match="--dev none --dev_file"):
        run_unsup.main([*unsup(dev="none"), f"--dev_file={dev_file}"])


def test_what_a_start_says_of_itself_and_is_not_trained_is_said(unsup, tmp_path, tiny_bert, caplog):
    encoder, tokenizer = load_encoder(str(tiny_bert), pooling="avg")
    encoder.save(str(tmp_path / "mean"), tokenizer)
    for pooling, said in (("avg", False), ("cls_before_pooler", True)):
        caplog.clear()
        flags = {"method": "simcse", "model_name_or_path": tmp_path / "mean", "pooling": pooling, "dry_run": "true"}
        run_unsup.main(unsup(**flags))
        assert ("has pooling avg; only its backbone is trained on" in caplog.text) == said


def test_processes_that_do_not_see_each_other_are_refused(monkeypatch):
    args = RunArguments(output_dir="run", use_cpu=True)
    monkeypatch.setenv("WORLD_SIZE", "2")  # as a launcher does
    with pytest.raises(BadInput, match=r"2 processes were started and this one is alone; .*--use_cpu true"):
        Run("run_unsup.py", [], [args], {})


@pytest.mark.parametrize("rate", ["1.5", "-0.1", "1"])
def test_a_dropout_rate_that_is_none_is_refused_by_its_flag(unsup, rate):
    with pytest.raises(BadInput, match=f"--dropout {float(rate)}: must be from 0 to below 1"):
        run_unsup.main(unsup(dropout=rate))


@pytest.mark.parametrize("columns", [0, 4])
def test_a_number_of_columns_that_no_reader_has_is_refused_by_its_flag(unsup, columns):
    with pytest.raises(BadInput, match=f"--columns {columns}: from 1 to 3"):
        run_unsup.main(unsup(columns=columns))


def test_text_that_the_tokenizer_does_not_know_is_said(unsup, tmp_path, caplog, capsys):
    (tmp_path / "other.txt").write_text("\n".join(f"文{'字' * n}" for n in range(40)), encoding="utf-8")
    run_unsup.main(unsup(method="simcse", train_file=tmp_path / "other.txt", dry_run="true"))
    assert "are unknown to the tokenizer: is it of another language?" in caplog.text
    assert "unknown: 100.0% of the tokens" in capsys.readouterr().out
    caplog.clear()
    run_unsup.main(unsup(method="simcse", dry_run="true"))
    assert "unknown to the tokenizer" not in caplog.text
