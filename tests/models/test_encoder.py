"""The artefact: saved, read back three ways, strict about what it is given."""

import json
import shutil
from functools import partial

import numpy as np
import pytest
import torch
from huggingface_hub.errors import LocalEntryNotFoundError
from safetensors.torch import load_file, save_file
from sentence_transformers import SentenceTransformer
from sentence_transformers.sentence_transformer.modules import Dense, Normalize, Pooling
from transformers import AutoModel, AutoTokenizer

from common.errors import BadInput
from data.template import mask_place, templated
from eval.encode import Encode
from models.encoder import SentenceEncoder, load_encoder
from models.heads import PROJECTIONS, projection_named
from models.loading import load_backbone, load_config, load_tokenizer, usable_length
from models.pooling import POOLINGS
from tests.encoders import encode_of
from tests.folders import change_json
from tests.methods import OTHER_FAMILIES
from tests.refusals import refused


def make_encoder(folder, pooling, head=None):
    tokenizer = load_tokenizer(str(folder))
    backbone = load_backbone(str(folder))
    if POOLINGS[pooling].at_mask:
        tokenizer = templated(tokenizer, 'The "{text}" {mask}.')
    trained = projection_named(head, backbone.config.hidden_size, 0.2) if head else None
    if trained is not None:
        trained(torch.randn(32, backbone.config.hidden_size))
    length, place = usable_length(backbone, tokenizer), mask_place(tokenizer)
    return SentenceEncoder(backbone, pooling, trained, length, place=place).eval(), tokenizer


SAVED = [(name, None) for name in POOLINGS if name != "cls"]
SAVED += [("cls", name) for name in PROJECTIONS]
SAVED = [(family, *how) for family in ("bert", "roberta") for how in SAVED]
SAVED += [(family, "avg", None) for family in OTHER_FAMILIES]


@pytest.mark.parametrize(("family", "pooling", "head"), SAVED)
def test_a_saved_encoder_is_the_same(family, pooling, head, tiny, tmp_path, sentences, monkeypatch):
    monkeypatch.setattr("models.heads.WIDE", 48)
    torch.manual_seed(0)
    encoder, tokenizer = make_encoder(tiny(family), pooling, head)
    texts = [*sentences[:12], "one", f"a {tokenizer.mask_token} of our own", "many words " * 40]
    expected = Encode(encoder, tokenizer)(texts)
    bound = 1e-6 * np.abs(expected).max()  # folding batch norm rounds once more
    state = torch.get_rng_state()
    encoder.save(str(tmp_path), tokenizer)
    assert torch.equal(torch.get_rng_state(), state), "a saved model changes no later dropout"

    again, tokenizer = load_encoder(str(tmp_path))
    assert again.pooling == pooling
    assert np.abs(Encode(again, tokenizer)(texts) - expected).max() < bound
    theirs = SentenceTransformer(str(tmp_path), device="cpu").encode(texts, show_progress_bar=False)
    assert np.abs(theirs - expected).max() < bound
    if head is None:
        options = {"padding": True, "truncation": True, "return_tensors": "pt"}
        inputs = AutoTokenizer.from_pretrained(tmp_path)(texts, **options)
        model = AutoModel.from_pretrained(tmp_path).eval()
        states = model(**inputs, output_hidden_states=True).hidden_states
        pooled = POOLINGS[pooling].pool(states, inputs["attention_mask"], again.place)
        if POOLINGS[pooling].at_mask:
            pooled = states[-1][inputs["input_ids"] == tokenizer.mask_token_id]  # one in each text
        assert np.abs(pooled.detach().numpy() - expected).max() < bound


def test_a_folder_whose_modules_another_program_has_changed_is_refused(tiny_bert, tmp_path):
    encoder, tokenizer = load_encoder(str(tiny_bert), "cls_before_pooler")
    encoder.save(str(tmp_path / "ours"), tokenizer)
    model = SentenceTransformer(str(tmp_path / "ours"), device="cpu")
    model.save(str(tmp_path / "same"))
    assert load_encoder(str(tmp_path / "same"))[0].pooling == "cls_before_pooler"
    width, old = encoder.config.hidden_size, shutil.copytree(tmp_path / "ours", tmp_path / "old")
    (old / "1_Pooling" / "config.json").write_text(json.dumps({"pooling_mode_mean_tokens": True}))
    changed = [Pooling(width, "mean")], [model[1], Dense(width, 8)], [model[1], Normalize()]
    others = [str(tmp_path / name) for name in ("mean", "dense", "unit")]
    for path, further in zip(others, changed, strict=True):
        SentenceTransformer(modules=[model[0], *further], device="cpu").save(path)
    for path in (*others, str(old)):
        refused(load_encoder, path, match=r"modules\.json and 'sentence_embedding' ")


def test_a_bert_that_is_a_decoder_is_one_in_every_pooling(tiny_bert, tmp_path, sentences):
    shutil.copytree(tiny_bert, tmp_path, dirs_exist_ok=True)
    change_json(tmp_path / "config.json", is_decoder=True)
    encoder, tokenizer = load_encoder(str(tmp_path), "avg_first_last")
    batch = tokenizer(sentences[:4], padding=True, return_tensors="pt")
    states = AutoModel.from_pretrained(tmp_path)(**batch, output_hidden_states=True).hidden_states
    mask = batch["attention_mask"].unsqueeze(2)
    expected = ((states[1] + states[-1]) / 2 * mask).sum(1) / mask.sum(1)
    found = encoder.eval().embed(batch["input_ids"], batch["attention_mask"])
    assert torch.allclose(found, expected, atol=1e-5)


def test_a_pooling_that_replaces_a_model_s_own_is_warned_about(tiny_bert, tmp_path, caplog):
    encoder, tokenizer = make_encoder(tiny_bert, "cls", "linear_tanh")
    encoder.save(str(tmp_path / "run"), tokenizer)
    load_encoder(str(tiny_bert), "avg")
    refused(load_encoder, str(tiny_bert), pooling="cls", match="trained head")
    load_encoder(str(tmp_path / "run"))
    assert not caplog.text
    assert load_encoder(str(tmp_path / "run"), "avg")[0].head is None
    assert "pooling avg replaces its own, cls, and drops its head" in caplog.text


@pytest.mark.parametrize(
    ("other", "said"),
    [
        ({"format": 2}, "has format 2, but this version reads 1; update"),
        ({"flow": {"width": 4, "steps": 2}}, "a flow, which an earlier version saved"),
    ],
)
def test_the_saved_format_of_another_version_is_refused(tiny_bert, tmp_path, other, said):
    encoder, tokenizer = make_encoder(tiny_bert, "avg")
    encoder.save(str(tmp_path), tokenizer)
    described = json.loads((tmp_path / "config.json").read_text())["sentence_embedding"]
    assert described == {"format": 1, "pooling": "avg", "head": None, "max_length": 64}
    change_json(tmp_path / "config.json", sentence_embedding=described | other)
    refused(load_encoder, str(tmp_path), match=said)


def test_weights_stored_in_half_precision_are_trained_and_compared_in_full(tiny_bert, tmp_path):
    half = AutoModel.from_pretrained(tiny_bert, dtype=torch.bfloat16)
    half.save_pretrained(tmp_path)
    load_tokenizer(str(tiny_bert)).save_pretrained(tmp_path)
    encoder, _ = load_encoder(str(tmp_path), pooling="avg")
    assert {parameter.dtype for parameter in encoder.parameters()} == {torch.float32}
    weight = encoder.backbone.embeddings.word_embeddings.weight
    assert torch.equal(weight, half.embeddings.word_embeddings.weight.float())
    with_head, tokenizer = make_encoder(tiny_bert, "cls", "linear_tanh")
    with_head.save(str(tmp_path / "head"), tokenizer)
    file = tmp_path / "head" / "2_Dense" / "model.safetensors"
    save_file({name: value.bfloat16() for name, value in load_file(file).items()}, file)
    head = load_encoder(str(tmp_path / "head"))[0].head
    assert {parameter.dtype for parameter in head.parameters()} == {torch.float32}


def test_an_unfinished_run_is_refused_and_its_best_model_named(tmp_path):
    (tmp_path / "run.json").write_text("{}")
    refused(load_encoder, str(tmp_path), match="an unfinished run; run .* again to finish it$")
    (tmp_path / "best").mkdir()
    refused(load_encoder, str(tmp_path), match=r"to finish it, or use .*/best$")


@pytest.mark.parametrize("length", [-5, 0, 2, 32.0])
def test_a_length_without_room_for_a_word_is_refused(tiny_bert, length):
    with pytest.raises(BadInput, match=f"--max_length {length}: must be an integer of at least 3"):
        load_encoder(str(tiny_bert), pooling="avg", max_length=length)


def test_more_tokens_than_the_model_takes_are_told(tiny_bert, caplog):
    encoder, _ = load_encoder(str(tiny_bert), pooling="avg", max_length=65)
    assert encoder.max_length == 64
    assert f"--max_length 65: '{tiny_bert}' takes at most 64 tokens" in caplog.text


def test_an_unreachable_hub_is_refused_unless_a_pooling_is_given(tiny_bert, monkeypatch, caplog):
    def offline(path, name):
        if name == "config.json":
            return tiny_bert / name
        raise LocalEntryNotFoundError("no connection")

    monkeypatch.setattr("models.folder.hf_hub_download", offline)
    for load in (load_config, load_tokenizer):
        found = partial(load, str(tiny_bert))
        monkeypatch.setattr(f"models.encoder.{load.__name__}", lambda path, found=found: found())
    refused(load_encoder, "owner/name", match=r"cannot check for modules\.json without the hub")
    monkeypatch.setattr("models.encoder.load_backbone", lambda *_: load_backbone(str(tiny_bert)))
    assert load_encoder("owner/name", pooling="avg")[0].pooling == "avg"
    assert "without the hub; go online once" in caplog.text


@pytest.mark.parametrize("family", ["bert", "roberta"])
def test_the_checkpoints_own_pooler_is_a_pooling_and_is_saved(family, tiny, tmp_path, sentences):
    """As published supervised SimCSE models are evaluated: `pooler_output`."""
    source, texts = str(tiny(family)), sentences[:9]
    torch.manual_seed(3)
    model, tokenizer = AutoModel.from_config(load_config(source)).eval(), load_tokenizer(source)
    for part in (model, tokenizer):
        part.save_pretrained(tmp_path / "sup")
    load_encoder(str(tmp_path / "sup"), "pooler")[0].save(tmp_path / "saved", tokenizer)
    with torch.no_grad():
        given = tokenizer(texts, padding=True, return_tensors="pt")
        expected = model(**given).pooler_output.numpy()
    theirs = SentenceTransformer(str(tmp_path / "saved"), device="cpu").encode(texts)
    ours = [encode_of(tmp_path / "sup", "pooler")(texts), encode_of(tmp_path / "saved")(texts)]
    assert np.abs(np.stack([*ours, theirs]) - expected).max() < 1e-6
    refused(load_encoder, str(tiny("electra")), "pooler", match="a 'electra' has no pooler")
