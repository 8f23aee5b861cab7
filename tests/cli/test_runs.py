"""Runs on sentences through their scripts: what they write, how they resume, what is refused."""

import json
import logging
import math
import shutil
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file
from transformers import AutoModel, TrainerCallback

import eval.__main__
import run_pretrain_aux
import run_sup
import run_unsup
from common.errors import CheckpointRefused
from common.folders import read_manifest
from eval.dev import DevScore
from tests import folders
from tests.folders import change_json, change_record, history, record, rewind, same_weights, times
from tests.refusals import refused
from training.trainer import EmbeddingTrainer

FINISHED = {"method": "simcse"}
UNSCORED = {"method": "simcse", "dev": "none"}


def test_a_run_leaves_the_artefact_its_record_and_its_log(infocse_run, tmp_path, dev_file):
    run, run_record, log = infocse_run, record(infocse_run), history(infocse_run)
    assert run_record["status"] == "finished" and run_record["steps"] == 6
    scored = [line for line in log if "eval_dev_spearman" in line]
    scores = {line["step"]: line["eval_dev_spearman"] for line in scored}
    assert [*scores] == [0, 2, 4, 6]
    assert scores.pop(0) == run_record["verdict"]["dev_of_initial"]
    assert run_record["best"]["value"] == max(scores.values()) == scores[run_record["best"]["step"]]
    terms = [line for line in log if "contrastive" in line]
    assert [line["step"] for line in terms] == [1, 2, 3, 4, 5, 6]
    for line in terms:
        assert line["loss"] == pytest.approx(line["contrastive"] + 0.1 * line["aux_mlm"], rel=1e-4)
    probed = {"eval_aux_mlm", "eval_aux_mlm_shuffled_cls", "eval_uniformity", "eval_mean_cosine"}
    assert probed <= {*log[-2]}
    assert same_weights(run / "best", run)
    assert not list(run.rglob("training_args.bin"))
    _, info = AutoModel.from_pretrained(run, add_pooling_layer=False, output_loading_info=True)
    assert not info["missing_keys"] and not info["unexpected_keys"]
    value = evaluated(run, dev_file, tmp_path / "scores.json")
    assert value == pytest.approx(run_record["best"]["value"], abs=1e-9)


def evaluated(folder, dev_file, output, *flags):
    """What `python -m eval` says of a model on the dev pairs."""
    eval.__main__.main([str(folder), f"--dev_file={dev_file}", f"--output={output}", *flags])
    [value] = [row["value"] for row in json.loads(output.read_text()) if row["headline"]]
    return value


def test_without_a_dev_task_the_last_model_is_the_result(unscored):
    assert "best" not in record(unscored) and not (unscored / "best").exists()
    last = load_file(unscored / "checkpoint-6" / "model.safetensors")
    for name, value in load_file(unscored / "model.safetensors").items():
        assert torch.equal(value, last[f"encoder.backbone.{name}"])


def test_evaluating_or_not_gives_the_same_weights(infocse_run, unsup, tmp_path, monkeypatch):
    monkeypatch.setattr(EmbeddingTrainer, "evaluate", lambda *_, **named: {})
    run_unsup.main(unsup("never", dev="none"))
    assert same_weights(infocse_run / "checkpoint-6", tmp_path / "never" / "checkpoint-6")


def test_the_initial_model_is_scored_and_no_candidate(unsup, tmp_path, stage_one_folder, dev_file):
    run_unsup.main(unsup(method="simcse", pooling="cls", max_steps=1, eval_steps=1))
    scored, pooling = tmp_path / "scores.json", "--pooling=cls_before_pooler"
    value = evaluated(stage_one_folder, dev_file, scored, pooling)
    first = history(tmp_path / "run")[0]
    assert (first["step"], first["eval_dev_spearman"]) == (0, pytest.approx(value))
    assert record(tmp_path / "run")["best"]["step"] == 1


def test_weight_zero_trains_what_simcse_trains_bit_for_bit(simcse_run, unsup, tmp_path):
    run_unsup.main(unsup("info", aux_weight=0))
    assert same_weights(tmp_path / "info" / "checkpoint-6", simcse_run / "checkpoint-6")


class Stop(TrainerCallback):
    """Stops before the first evaluation."""

    def on_step_end(self, args, state, control, **kwargs):
        control.should_training_stop = state.global_step == 1


def test_a_callback_can_end_a_run_of_any_thread_whose_best_model_is_the_result(unsup, tmp_path):
    with ThreadPoolExecutor(1) as pool:
        pool.submit(run_unsup.main, unsup("run", method="simcse"), [Stop()]).result()
    run = record(tmp_path / "run")
    assert (run["status"], run["steps"], run["best"]["step"]) == ("finished", 1, 1)
    assert run["findings"][0] == "training ended after step 1 of 6"
    assert same_weights(tmp_path / "run", tmp_path / "run" / "best")


def test_a_loss_that_compares_no_sentences_takes_a_batch_of_one(unsup, tmp_path):
    flags = {"per_device_train_batch_size": 1, "max_steps": 1, "projection": "none"}
    run_unsup.main(unsup("tsdae", method="tsdae", **flags))
    run_sup.main(unsup("nli", "nli", contrastive_weight=0, **flags))
    for name in ("tsdae", "nli"):
        assert (tmp_path / name / "scores.json").exists()


def rows(sentences, folder, columns):
    """A file of 60 tab-separated rows of so many sentences."""
    lines = ("\t".join(sentences[i : i + columns]) for i in range(60))
    (folder / "rows.tsv").write_text("\n".join(lines), encoding="utf-8")
    return folder / "rows.tsv"


def test_one_sentence_fills_a_batch_if_it_is_repeated(unsup, tmp_path):
    flags = {"max_rows": 1, "method": "consert", "train_pooling": "avg", "max_steps": 2}
    run_unsup.main(unsup(**flags, upsample=True))
    assert history(tmp_path / "run")[1]["contrastive"] > 0
    refused(run_unsup.main, unsup("few", **flags))


def test_a_repeated_row_is_not_called_held_out(unsup, tmp_path, sentences, capsys):
    long = tmp_path / "long.txt"
    long.write_text("\n".join(f"{number} {sentences[number % 300]}" for number in range(1000)))
    flags = {"method": "simcse", "dry_run": True, "train_file": long, "dev": "none"}
    run_unsup.main(unsup(**flags))
    assert ", 10 held out, " in capsys.readouterr().out
    run_unsup.main(unsup(**flags, max_rows=100, upsample=True))
    assert "1,000 examples, " in capsys.readouterr().out


def test_the_second_column_is_edited_like_the_second_view(unsup, tmp_path, sentences):
    text = rows(sentences, tmp_path, 2)
    flags = {"method": "esimcse", "train_file": text, "columns": 2, "max_steps": 2}
    run_unsup.main(unsup("repeated", **flags))
    run_unsup.main(unsup("plain", **flags, repeat_rate=0))
    ends = [tmp_path / name / "checkpoint-2" for name in ("repeated", "plain")]
    assert not same_weights(*ends)


READS = [("infocse", {}, 2), ("mirror_bert", {"span_tokens": 0}, 2), ("moco", {}, 2)]
READS += [("consert", {"view_1": "none", "view_2": "none"}, 2), ("sg_opt", {}, 1)]


@pytest.mark.parametrize(("method", "flags", "most"), READS)
def test_more_columns_than_are_read_are_refused(unsup, tmp_path, sentences, method, flags, most):
    columns, text = most + 1, rows(sentences, tmp_path, most + 1)
    flags |= {"method": method, "train_file": text, "columns": columns}
    refused(run_unsup.main, unsup(**flags), match=f"{columns} texts per row .* at most {most}")


@pytest.mark.parametrize(("count", "trained_on", "held"), [(999, 999, 0), (1050, 1040, 10)])
def test_enough_examples_are_held_out(count, trained_on, held, unsup, sentences, tmp_path, caplog):
    text = tmp_path / "text.txt"
    text.write_text("".join(f"{sentences[n % 300]} {sentences[n // 300]}\n" for n in range(count)))
    with caplog.at_level(logging.INFO):
        run_unsup.main(unsup(method="simcse", train_file=text, dev="none", max_steps=1))
    _, seen = [line for line in history(tmp_path / "run") if "eval_uniformity" in line]
    assert all(math.isfinite(value) for value in seen.values())
    said = f", {held} held out" if held else ""
    assert f"text: {trained_on:,} examples{said}, 1 steps of 8" in caplog.text
    if held:
        large = {"method": "simcse", "train_file": text, "per_device_train_batch_size": 1045}
        said = "1040 examples, with 10 held out, are fewer than one batch of 1045 in"
        refused(run_unsup.main, unsup("two", **large), match=said)


@pytest.mark.parametrize(
    ("script", "flags"),
    [
        (run_unsup, {"method": "simcse", "max_length": 8, "dev": "none", "max_grad_norm": 0.1}),
        (run_unsup, {"dropout": 0, "dev": "none", "max_grad_norm": 0.1}),
        (run_pretrain_aux, {"dropout": 0, "max_grad_norm": -1}),  # which clips nothing
    ],
)
def test_steps_of_graphs_are_those_of_a_plain_run(unsup, aux, tmp_path, script, flags):
    """On a CPU, where nothing is captured: the weights, and the norms before they are clipped.
    Other shapes would take other numbers for dropout."""
    arguments = unsup if script is run_unsup else aux
    flags |= {"packed": "false", "max_steps": 3, "optim": "sgd", "learning_rate": 0.05}
    runs = [tmp_path / name for name in ("plain", "graph")]
    for run, graph in zip(runs, ("false", "true"), strict=True):
        script.main(arguments(run.name, **flags, cuda_graph=graph))
    weights = [load_file(run / "checkpoint-3" / "model.safetensors") for run in runs]
    norms = [[line["grad_norm"] for line in history(run) if "grad_norm" in line] for run in runs]
    assert norms[0] == pytest.approx(norms[1], rel=1e-4) and min(norms[0]) > 0.2
    for name, value in weights[0].items():
        torch.testing.assert_close(weights[1][name], value, rtol=1e-5, atol=1e-7)


ACCUMULATED = {"gradient_accumulation_steps": 2, "per_device_train_batch_size": 4}
OTHERS = {"projection": "linear_tanh", "packed": "false", "adamw": "transformers"}
EPOCH = {"num_train_epochs": 1, "max_steps": -1, "max_rows": 30}  # 3 steps
EPOCHS = EPOCH | {"num_train_epochs": 3, "save_steps": 5, "dataloader_num_workers": 1}
SMALLER = EPOCH | {"dataloader_drop_last": "false", "cuda_graph": "true"}  # and one of 6 sentences
RESUMED = {
    "padded, other AdamW, accumulated": ("simcse", ACCUMULATED | OTHERS | {"weight_decay": 0.01}),
    "second and third epoch in bf16, with a worker": ("infocse", EPOCHS | {"bf16": "true"}),
    "a smaller last batch, as graphs": ("simcse", SMALLER),
    "bf16 chunks, accumulated": ("infocse", ACCUMULATED | {"chunk_size": 3, "bf16": "true"}),
}


@pytest.mark.parametrize(("method", "flags"), RESUMED.values(), ids=RESUMED)
def test_a_resumed_run_equals_the_uninterrupted_one_bit_for_bit(unsup, tmp_path, method, flags):
    """As every method's does in test_methods.py."""
    run_unsup.main(unsup("whole", method, **flags))
    whole, cut = tmp_path / "whole", shutil.copytree(tmp_path / "whole", tmp_path / "cut")
    steps = record(whole)["steps"]
    first = min(int(path.name.split("-")[1]) for path in whole.glob("checkpoint-*"))
    assert first < steps
    rewind(cut, first)
    if record(cut)["best"]["step"] > first:  # the rest of the run has to find it again
        (cut / "best" / "model.safetensors").write_bytes(b"to be written again")
    torch.manual_seed(99)  # whatever the process did before must not matter
    run_unsup.main(unsup("cut", method, **flags))
    last = f"checkpoint-{steps}"
    assert same_weights(whole / last, cut / last) and same_weights(whole, cut)
    lines = [history(run) for run in (whole, cut)]
    for name in ("contrastive", "eval_uniformity"):
        told, again = ([line for line in log if name in line] for log in lines)
        assert told == again
    assert not same_weights(whole / f"checkpoint-{first}", whole / last)


def test_a_resumed_run_uses_its_intervals_and_records_the_versions_before(unsup, stopped, caplog):
    versions = record(stopped)["versions"] | {"torch": "1.0"}
    change_record(stopped, commit="old", changed_files=7, versions=versions)
    run_unsup.main(unsup(**UNSCORED, save_total_limit=9, save_steps=1, logging_steps=1))
    assert sorted(path.name[-1] for path in stopped.glob("checkpoint-*")) == ["3", "4", "5", "6"]
    assert [line["step"] for line in history(stopped) if "contrastive" in line] == [4, 5, 6]
    [before] = record(stopped)["earlier_starts"]
    assert (before["commit"], before["changed_files"]) == ("old", 7)
    assert before["versions"] == versions
    assert "the run began with torch 1.0" in caplog.text


@pytest.mark.parametrize("kept", [[], ["best"]])
def test_a_run_killed_before_a_checkpoint_starts_over(unsup, unscored, tmp_path, caplog, kept):
    run = tmp_path / "run"
    run.mkdir()
    shutil.copy(unscored / "run.json", run)
    change_record(run, status="running")
    for name in kept:
        (run / name).mkdir()
    run_unsup.main(unsup(**UNSCORED))
    assert f"{run}: no checkpoint was saved: from step 0 again" in caplog.text
    assert "earlier_starts" not in record(run) and same_weights(run, unscored)


def test_the_best_checkpoint_may_be_the_only_one(unsup, tmp_path):
    """Of a saved step that is the best so far, stock would look for the checkpoint at the end."""
    flags = {"save_total_limit": 1, "eval_steps": 2, "save_steps": 2, "max_steps": 4}
    run_unsup.main(unsup(method="simcse", **flags))
    run = tmp_path / "run"
    assert record(run)["status"] == "finished"
    assert [path.name for path in run.glob("checkpoint-*")] == ["checkpoint-4"]
    state = json.loads((run / "checkpoint-4" / "trainer_state.json").read_text())
    assert state["best_metric"] == record(run)["best"]["value"]
    assert state["best_model_checkpoint"] is None


@pytest.mark.parametrize(
    ("name", "content"),
    [
        *((name, "evil") for name in ("optimizer.pt", "scheduler.pt", "rng_state.pth")),
        ("rng_state.pth", {"a": 1}),
        ("model.safetensors", b"nothing"),
        ("trainer_state.json", b'{"global_step": 3, "max_steps": 6, "x": 1}'),
    ],
)
def test_a_forged_checkpoint_is_refused_and_not_run(unsup, stopped, tmp_path, name, content):
    forged = stopped / "checkpoint-3" / name
    if isinstance(content, bytes):
        forged.write_bytes(content)
    else:
        torch.save(folders.Evil(tmp_path / "ran") if content == "evil" else content, forged)
    folders.reseal(forged.parent)
    said = refused(run_unsup.main, unsup(**UNSCORED), error=CheckpointRefused)
    assert "checkpoint-3" in said and "is valid" not in said, "the manifest fits"
    assert not (tmp_path / "ran").exists()
    assert [path.name for path in stopped.glob("checkpoint-*")] == ["checkpoint-3"]


def test_a_finished_run_is_not_changed_and_extra_files_do_not_matter(unsup, finished, caplog):
    before = times(finished)
    run_unsup.main(unsup(**FINISHED))
    run_unsup.main(unsup(**FINISHED, logging_steps=5, save_steps=1))  # may differ
    assert times(finished) == before
    result = read_manifest(finished)["files"]
    expected = {"model.safetensors", "config.json", "tokenizer.json", "1_Pooling/config.json"}
    assert expected <= result.keys()
    (finished / "scores.json").write_text("[]")
    (finished / "README.md").write_text("a card")
    shutil.rmtree(finished / "best")
    run_unsup.main(unsup(**FINISHED))


def test_files_are_compared_by_content(unsup, tmp_path, stage_one_folder, text_file, dev_file):
    start, dev, text = tmp_path / "start", tmp_path / "dev.tsv", tmp_path / "same.txt"
    shutil.copytree(stage_one_folder, start)
    shutil.copy(dev_file, dev)
    shutil.copy(text_file, text)
    flags = FINISHED | {"model_name_or_path": start, "dev_file": dev, "max_steps": 2}
    run_unsup.main(unsup(**flags))
    run_unsup.main(unsup(**flags, train_file=text, cache_dir=tmp_path / "new"))  # the same text
    assert record(tmp_path / "run")["text_files"] == [text_file.name]
    lines = dev.read_text().splitlines()
    dev.write_text("\n".join([*lines[:-1], lines[1]]) + "\n")
    refused(run_unsup.main, unsup(**flags), match="dev_pairs: ", error=CheckpointRefused)
    shutil.copy(dev_file, dev)
    change_json(start / "config.json", hidden_dropout_prob=0.5)
    with pytest.raises(CheckpointRefused, match=r"--model_name_or_path: config\.json changed"):
        run_unsup.main(unsup(**flags))


def test_a_new_dev_score_selects_the_best_and_a_resume_refuses_others(unsup, tmp_path, monkeypatch):
    def choose(data, *values):
        left = [*values]
        dev = DevScore(
            "dev_accuracy", "accuracy", data, lambda _: {"value": np.full(3, left.pop(0))}
        )
        monkeypatch.setattr("training.stages.load_dev", lambda data_args: dev)

    choose(["a"], 0.1, 0.9, 0.5, 0.9)  # the initial model, steps 2 and 4, the result
    run_unsup.main(unsup(**FINISHED, max_steps=4))
    made = record(tmp_path / "run")
    assert made["best"] == {"step": 2, "value": 90.0}
    assert (made["verdict"]["title"], made["verdict"]["verdict"]) == ("accuracy", "better")
    choose(["b"])
    with pytest.raises(CheckpointRefused, match="dev_pairs: "):
        run_unsup.main(unsup(**FINISHED, max_steps=4))


def test_a_run_out_of_patience_ends_also_after_a_resume(unsup, tmp_path):
    """At learning rate 0 no score is higher than the first."""
    flags = {"method": "simcse", "patience": 2, "eval_steps": 1, "save_steps": 1}
    flags |= {"save_total_limit": 9, "learning_rate": 0}
    run_unsup.main(unsup("whole", **flags))
    whole, run_record = tmp_path / "whole", record(tmp_path / "whole")
    assert (run_record["steps"], run_record["best"]["step"]) == (3, 1)
    assert run_record["findings"][0] == "training ended after step 3 of 6"

    def logged(run):
        kept = ("eval_dev_spearman", "contrastive", "eval_uniformity")
        lines = [line for line in history(run) if "train_loss" not in line]
        return [[line.get(name) for name in kept] for line in lines]

    for step in (1, 3):
        run = shutil.copytree(whole, tmp_path / f"from-{step}")
        rewind(run, step)
        run_unsup.main(unsup(run.name, **flags))
        assert record(run)["steps"] == 3 and record(run)["findings"] == run_record["findings"]
        assert same_weights(whole, run)
        assert same_weights(whole / "checkpoint-3", run / "checkpoint-3")
        assert logged(whole) == logged(run)


@pytest.mark.parametrize(
    ("equal", "said"), [(False, "checkpoint's vectors"), (True, "all examined texts are equal")]
)
def test_parallel_vectors_warn(unsup, tmp_path, stage_one_folder, sentences, caplog, equal, said):
    model = shutil.copytree(stage_one_folder, tmp_path / "model")
    text = tmp_path / "text.txt"
    text.write_text("\n".join(sentences[:1] * 200 if equal else sentences[:200]))
    if not equal:  # the last layer gives every text the same vector
        tensors = load_file(model / "model.safetensors")
        tensors["bert.encoder.layer.3.output.LayerNorm.weight"] *= 0
        tensors["bert.encoder.layer.3.output.LayerNorm.bias"] += 1
        save_file(tensors, model / "model.safetensors", metadata={"format": "pt"})
    flags = {"model_name_or_path": model, "train_file": text, "learning_rate": "1e-9"}
    with caplog.at_level(logging.INFO):
        run_unsup.main(unsup(method="simcse", max_steps=1, **flags))
    assert said in record(tmp_path / "run")["findings"][-1]
    assert "nearly parallel" in caplog.messages[-1]
    levels = [line.levelname for line in caplog.records if said in line.message]
    assert levels == ["WARNING", "INFO"], "once when it is seen, and at the end"
