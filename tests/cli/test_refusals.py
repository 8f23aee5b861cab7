"""What the training scripts refuse or warn about before the first step; nothing here trains."""

import re

import pytest

import run_pretrain_aux
import run_sup
import run_unsup
from common.errors import BadInput
from models.encoder import load_encoder
from tests.refusals import refused
from training.methods import UNSUP, method_names
from training.run_arguments import RunArguments
from training.settings import fill
from training.stages import new_record

# Older releases of transformers have only the second name.
NAMES = ("activation_checkpointing", "gradient_checkpointing")
CHECKPOINTING = next(name for name in NAMES if hasattr(RunArguments, name))
WHOLE = {"model_name_or_path": "mpnet"}  # a backbone that is called as a whole


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        ({"method": "simsce"}, "did you mean 'simcse'. choose one of consert, .*infocse, .*simcse"),
        ({"per_device_train_batch_size": 5000}, "fewer than one batch"),
        (
            {"dataloader_drop_last": "false", "max_rows": 9},
            "the last of 9 sentences are a batch of 1",
        ),
        ({"pooling": "cls", "projection": "none"}, "saves the projection head, but no loss"),
        ({"pooling": "max"}, "unknown pooling 'max'"),
        ({"test_tasks": "STS99"}, "STS99"),
        # before the text is read
        ({"dev_file": "/no.tsv", "train_file": "/no"}, "^/no.tsv: no such file or directory$"),
        ({"aux_weight": 0, "contrastive_weight": 0}, "no loss"),
        ({"skip_from": 4, "aux_init": "random"}, "--skip_from 4: .* from 0 to 3 .* auto takes"),
        ({"pooling": "cls", "contrastive_weight": 0}, "no loss trains"),
        ({CHECKPOINTING: "true", "method": "s_simcse"}, "--activation_checkpointing: not supporte"),
        ({"eval_strategy": "epoch"}, "--eval_strategy epoch: give --eval_steps"),
        ({"save_strategy": "best"}, "--save_strategy best: best/ keeps the best model anyway"),
        ({"max_steps": 0}, "--max_steps 0: give 1 or more"),
        ({"lr_scheduler_type": "reduce_lr_on_plateau"}, "--lr_scheduler_type reduce_lr_on_plat"),
        ({"lr_scheduler_type": "constant", "warmup_steps": 2}, "--warmup_steps: does nothing with"),
        ({"hard_negative_weight": 1}, "--hard_negative_weight: the text has no third column"),
        ({"optim": "schedule_free_adamw"}, "--optim schedule_free_adamw "),
        ({"optim": "sgd", "adamw": "transformers"}, "--optim sgd with --adamw transformers"),
        ({"cuda_graph": "true", "method": "moco"}, "--cuda_graph: not supported here; its queue g"),
        ({"cuda_graph": "true", "gradient_accumulation_steps": 2}, "--cuda_graph: .* it needs one"),
        ({"report_to": "dvclive"}, "--report_to dvclive: unknown, or its package is not installed"),
        ({"cache_dir": "/dev/null/x"}, "/dev/null/x/\\w+: cannot be written"),
        ({"output_dir": "/dev/null/x"}, "/dev/null/x/run.json: cannot be written"),
        (WHOLE | {"method": "consert"}, "perturbed embeddings needs .* not 'mpnet'"),
        (WHOLE | {"method": "nli", "view_2": "none"}, "adversarial view needs .* not 'mpnet'"),
    ],
)
def test_bad_configuration_is_refused_before_any_work(unsup, tiny, tmp_path, flags, message):
    script = run_sup if flags.get("method") == "nli" else run_unsup
    start = {name: tiny(flags[name]) for name in WHOLE if name in flags}
    refused(script.main, unsup(**flags | start), match=message)
    assert not [*tmp_path.glob("run/*")]


COMPARING = [name for name in method_names() if name != "tsdae"]


@pytest.mark.parametrize("method", COMPARING)
def test_a_batch_of_one_is_refused_before_the_run_begins(unsup, tmp_path, method):
    said = {"ct": "leaves 0 sentences for pairs"}.get(method, "a batch of one sentence has no nega")
    with pytest.raises(BadInput, match=said):
        script = run_sup if method in method_names(labels=True) else run_unsup
        script.main(unsup(method=method, per_device_train_batch_size=1))
    assert not [*tmp_path.glob("run/*")]


@pytest.mark.parametrize("names", [("premise",), ("premise", "hypothesis", "label", "id")])
def test_labelled_pairs_have_two_texts(unsup, names):
    argv = [word for word in unsup(method="nli") if not word.startswith("--text_column")]
    with pytest.raises(BadInput, match="labelled pairs have two texts, such as premise hypothesis"):
        run_sup.main([*argv, "--text_column", *names])


@pytest.mark.parametrize(
    ("name", "value", "said"),
    [
        ("MIXED_PRECISION", "bf16", "launcher sets mixed precision 'bf16' and the flags 'no'"),
        ("USE_FSDP", "true", "shards the model"),
    ],
)
def test_what_a_launcher_sets_must_fit(unsup, tmp_path, monkeypatch, name, value, said):
    monkeypatch.setenv(f"ACCELERATE_{name}", value)
    refused(run_unsup.main, unsup(), match=said)
    assert not [*tmp_path.glob("run/*")]


def test_unconnected_processes_are_refused(monkeypatch):
    settings = fill(UNSUP, {"method": "simcse", "output_dir": "run", "use_cpu": True})
    monkeypatch.setenv("WORLD_SIZE", "2")  # as a launcher does
    refused(new_record, settings, {}, match=r"2 processes .* not connected; .*--use_cpu true")


def test_a_token_of_the_hub_in_a_configuration_is_neither_shown_nor_written(unsup, tmp_path, capfd):
    token = "hf_" + "aB3" * 11
    (tmp_path / "config.yaml").write_text(f"run_name: {token}\n")
    said = "looks like a hub token and would be recorded; set HF_TOKEN"
    with pytest.raises(BadInput, match=said) as told:
        run_unsup.main([*unsup(), "--config", str(tmp_path / "config.yaml")])
    assert token not in str(told.value) + "".join(capfd.readouterr())
    assert not [*tmp_path.glob("run/*")]


def _warned(unsup, words, caplog, **flags):
    """Whether the plan of a run warns in these words."""
    caplog.clear()
    run_unsup.main(unsup(dry_run="true", **{"method": "simcse"} | flags))
    return words in caplog.text


def test_equal_views_and_an_ignored_pooling_are_warned_about(unsup, tmp_path, tiny_bert, caplog):
    words = "both views have the same vector"
    assert not _warned(unsup, words, caplog, dropout=0.1)
    assert _warned(unsup, words, caplog, dropout=0)
    encoder, tokenizer = load_encoder(str(tiny_bert), pooling="avg")
    encoder.save(str(tmp_path / "mean"), tokenizer)
    words = "has pooling avg; training uses only its backbone"
    start = {"model_name_or_path": tmp_path / "mean"}
    assert not _warned(unsup, words, caplog, pooling="avg", **start)
    assert _warned(unsup, words, caplog, pooling="cls_before_pooler", **start)


def test_text_unknown_to_the_tokenizer_is_told_or_refused(unsup, aux, tmp_path, caplog, capsys):
    lines = "\n".join(f"文{'字' * n}" for n in range(40))
    words = "are unknown to the tokenizer: was"
    (tmp_path / "other.txt").write_text(lines, encoding="utf-8")
    (tmp_path / "mixed.txt").write_text(lines.replace("文", "a "), encoding="utf-8")
    assert _warned(unsup, words, caplog, train_file=tmp_path / "mixed.txt")
    assert re.search(r"unknown: 9\d\.\d% of the tokens", capsys.readouterr().out)
    assert not _warned(unsup, "unknown to the tokenizer", caplog)
    for script, flags in ((run_unsup, unsup), (run_pretrain_aux, aux)):
        with pytest.raises(BadInput, match=f"100.0% of the text's tokens {words}"):
            script.main(flags(train_file=tmp_path / "other.txt"))


def test_dry_run_prints_the_plan_and_writes_no_run(unsup, tmp_path, capsys, monkeypatch):
    (tmp_path / "temporary").mkdir()
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path / "temporary"))
    run_unsup.main([*unsup(), "--dry_run"])
    printed = capsys.readouterr().out
    facts = ["hidden_dropout_prob 0.1", "masked 40% (bert)", "6 steps of 8 (0.16 epochs)"]
    assert all(word in printed for word in (*facts, "settings: max_steps 6 (flag)"))
    assert not [*tmp_path.glob("run/*")]
    assert not [*(tmp_path / "temporary").glob("dry-run-*")]
    (tmp_path / "run").mkdir(exist_ok=True)
    (tmp_path / "run" / "notes").write_text("mine")
    refused(run_unsup.main, [*unsup(), "--dry_run"], match="not empty and not a run")
