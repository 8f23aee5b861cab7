"""Stage 1 through its script: what it leaves, how it resumes, and that stage 2 starts from it."""

import json
import shutil

import pytest
import torch
from safetensors.torch import load_file
from transformers import AutoModel, AutoModelForMaskedLM, BertConfig

import run_pretrain_aux
import run_unsup
from common.errors import BadInput
from models.encoder import load_encoder
from models.loading import load_tokenizer
from tests.folders import history, record, rewind, same_weights
from tests.refusals import refused


def test_stage_one_resumes_bit_for_bit_and_feeds_stage_two(aux, unsup, tmp_path):
    run_pretrain_aux.main(aux("whole"))
    whole, cut = tmp_path / "whole", shutil.copytree(tmp_path / "whole", tmp_path / "cut")
    log = history(whole)
    seen = {name for line in log for name in line}
    assert {"eval_mlm", "eval_aux_mlm", "eval_aux_mlm_shuffled_cls"} <= seen
    for line in log:
        if "mlm" in line:
            assert line["loss"] == pytest.approx(line["mlm"] + line["aux_mlm"], rel=1e-4)
    rewind(cut, 3)
    run_pretrain_aux.main(aux("cut"))
    for name in ("model.safetensors", "aux_head.safetensors"):
        assert same_weights(whole, cut, name)
    _, info = AutoModelForMaskedLM.from_pretrained(whole, output_loading_info=True)
    assert not info["missing_keys"] and not info["unexpected_keys"]
    head = load_file(whole / "aux_head.safetensors")
    assert {name[:9] for name in head} == {"c_head.0.", "c_head.1."} and len(head) == 32
    run_unsup.main(unsup(model_name_or_path=whole, max_steps=2))
    assert record(tmp_path / "run")["status"] == "finished"


def test_a_head_that_reads_the_clean_text_feeds_stage_two(aux, unsup, tmp_path):
    options = {"aux_cls": "clean", "aux_mask_rate": 0.5, "head_init": "encoder_top"}
    run_pretrain_aux.main(aux(**options, bow_weight=0.1, skip_from=0))
    seen = {name for line in history(tmp_path / "aux") for name in line}
    assert {"eval_aux_mlm", "eval_aux_mlm_shuffled_cls", "eval_bow", "tokens"} <= seen
    run_unsup.main(unsup(model_name_or_path=tmp_path / "aux", skip_from=0, max_steps=2))
    assert record(tmp_path / "run")["status"] == "finished"


def test_an_encoder_without_output_head_goes_through_both_stages(aux, unsup, tiny_bert, tmp_path):
    start = tmp_path / "start"
    AutoModel.from_pretrained(tiny_bert, add_pooling_layer=False).save_pretrained(start)
    load_tokenizer(str(tiny_bert)).save_pretrained(start)
    refused(run_pretrain_aux.main, aux(model_name_or_path=start), match=r"lacks .* tensors of a ")
    run_pretrain_aux.main(aux(model_name_or_path=start, output_init="new"))
    run_unsup.main(unsup(model_name_or_path=tmp_path / "aux", max_steps=2, pooling="cls"))
    assert record(tmp_path / "run")["status"] == "finished"
    flags = {"model_name_or_path": tmp_path / "run", "output_init": "new", "max_steps": 1}
    run_pretrain_aux.main(aux("again", **flags))
    assert load_encoder(str(tmp_path / "again"), "avg")[0].head is None


def test_a_plain_masked_language_model_keeps_no_head(aux, unsup, stage_one_folder, tmp_path):
    flags = {"head_layers": 0, "skip_from": 99, "max_steps": 2}
    run_pretrain_aux.main(aux(model_name_or_path=stage_one_folder, **flags))
    before, after = (
        json.loads((folder / "config.json").read_text()).keys() & {"skip_from", "head_layers"}
        for folder in (stage_one_folder, tmp_path / "aux")
    )
    assert len(before) == 2 and not after
    assert not (tmp_path / "aux" / "aux_head.safetensors").exists()
    with pytest.raises(BadInput, match="no pre-trained auxiliary head"):
        run_unsup.main(unsup(model_name_or_path=tmp_path / "aux"))


def test_a_trained_head_is_continued_whatever_starts_a_new_one(aux, stage_one_folder, tmp_path):
    flags = {"model_name_or_path": stage_one_folder, "max_steps": 1, "head_init": "encoder_top"}
    run_pretrain_aux.main(aux(**flags, learning_rate=0))
    assert same_weights(tmp_path / "aux", stage_one_folder, "aux_head.safetensors")
    with pytest.raises(BadInput, match=r"--skip_from 3: the head .* trained with skip_from 2"):
        run_pretrain_aux.main(aux("other", **flags | {"skip_from": 3}))


def test_from_scratch_a_vocabulary_is_learned_or_is_that_of_a_folder(aux, tiny_bert, tmp_path):
    """The configuration asks for bfloat16."""
    sizes = {"hidden_size": 32, "num_hidden_layers": 4, "num_attention_heads": 4}
    config = BertConfig(**sizes, intermediate_size=64, dtype="bfloat16")
    config.save_pretrained(tmp_path / "config")
    flags = {"model_name_or_path": None, "config_name": tmp_path / "config", "max_steps": 2}
    run_pretrain_aux.main(aux("new", **flags, vocabulary_size=300))
    config = AutoModelForMaskedLM.from_pretrained(tmp_path / "new").config
    assert config.vocab_size <= 300
    tensors = load_file(tmp_path / "new" / "model.safetensors").values()
    assert {value.dtype for value in tensors} == {torch.float32}
    assert (config.skip_from, config.head_layers) == (2, 2)
    flags["tokenizer_name"] = tiny_bert
    run_pretrain_aux.main(aux(**flags))
    theirs, ours = (load_tokenizer(folder) for folder in (tiny_bert, tmp_path / "aux"))
    assert ours.get_vocab() == theirs.get_vocab()
    taught = flags | {"vocabulary_size": 300}
    for wrong, said in ((taught, "vocabulary_size"), ({"config_name": "x"}, "give either")):
        refused(run_pretrain_aux.main, aux("other", **wrong), match=said)
