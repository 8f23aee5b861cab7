"""The pieces of a backbone, stage 1's losses by hand, and the import of Condenser's layout."""

import shutil

import pytest
import torch
from safetensors.torch import load_file
from transformers import AutoModel, AutoModelForMaskedLM

from common.errors import BadInput
from models.auxiliary import LowerLayers, load_head, load_masked_lm, new_head
from models.loading import load_tokenizer
from models.masked_lm import AuxiliaryMaskedLM
from tests.methods import stage_one, stage_one_batch


def test_the_loss_is_a_sum_over_the_tokens_of_all_micro_batches_when_their_number_is_given(
    tiny_bert,
):
    model = stage_one(tiny_bert).eval()
    batch = stage_one_batch(tiny_bert, [11, 9, 7, 5])
    whole, count = model(**batch).loss, model.count_targets(batch)
    assert count.tolist() == [int((batch["masked_labels"] != -100).sum())] * 2, "of both losses"
    total = 0.0
    for rows in (slice(0, 2), slice(2, 4)):
        half = {name: value[:, rows] for name, value in batch.items()}
        total += model(**half, num_items_in_batch=count).loss.item()
    assert total == pytest.approx(whole.item(), rel=1e-5)


def test_stage_one_is_saved_as_an_unprefixed_model_and_a_head(folder, tmp_path):
    model = stage_one(folder, skip_from=3)
    model.save(str(tmp_path), load_tokenizer(folder))
    again, info = AutoModelForMaskedLM.from_pretrained(tmp_path, output_loading_info=True)
    assert not info["missing_keys"] and not info["unexpected_keys"]
    assert (again.config.skip_from, again.config.head_layers) == (3, 2)
    tensors = load_file(tmp_path / "aux_head.safetensors")
    assert len(tensors) == 32
    assert all(name.startswith(("c_head.0.", "c_head.1.")) for name in tensors)
    head = load_head(str(tmp_path), again.base_model, 2, 3)
    assert_same(head.state_dict(), model.c_head.state_dict())


def assert_same(left, right):
    torch.testing.assert_close(dict(left), dict(right), rtol=0, atol=0)


def write_condenser(folder, target, drop=(), extra=None):
    """Condenser's layout: an HF folder plus model.pt with the head's state, `c_head.{i}.*`."""
    shutil.copytree(folder, target, dirs_exist_ok=True)
    head = new_head(load_masked_lm(str(folder)).base_model, 2)
    state = {f"c_head.{name}": value for name, value in head.state_dict().items()}
    for name in drop:
        del state[f"c_head.{name}"]
    torch.save(state | (extra or {}), target / "model.pt")
    return head


def test_condensers_layout_is_imported_whole(tiny_bert, tmp_path):
    head = write_condenser(tiny_bert, tmp_path, extra={"co_target": torch.arange(4)})
    assert len(head.state_dict()) == 32
    read = load_head(str(tmp_path), load_masked_lm(str(tmp_path)).base_model, 2, 2)
    assert_same(read.state_dict(), head.state_dict())


@pytest.mark.parametrize(
    ("drop", "extra", "layers"),
    [
        (("1.output.dense.weight",), {}, 2),
        ((), {"c_head.2.output.dense.bias": torch.zeros(32)}, 2),
        ((), {}, 1),
        ((), {"lm.something": torch.zeros(1)}, 2),
        (("0.output.dense.bias",), {"c_head.0.output.dense.bias": torch.zeros(7)}, 2),
        ((), {"c_head.0.output.dense.bias": torch.full((32,), torch.nan)}, 2),
    ],
)
def test_a_head_that_does_not_fill_every_tensor_is_refused(
    tiny_bert, tmp_path, drop, extra, layers
):
    write_condenser(tiny_bert, tmp_path, drop, extra)
    with pytest.raises(BadInput, match=r"auxiliary head|dense\.bias' is not finite"):
        load_head(str(tmp_path), load_masked_lm(str(tmp_path)).base_model, layers, 2)


@pytest.mark.parametrize("skip_from", [-1, 4, 6])
def test_a_layer_the_backbone_does_not_have_is_refused_by_name(tiny_bert, skip_from):
    lm = load_masked_lm(str(tiny_bert))
    with pytest.raises(BadInput, match=f"--skip_from {skip_from}: .* auto takes"):
        AuxiliaryMaskedLM(lm, new_head(lm.base_model, 2), skip_from)
    with pytest.raises(BadInput, match="--skip_from"):
        LowerLayers(lm.base_model, skip_from)


def test_a_new_output_head_is_drawn_and_shares_the_embeddings_of_the_checkpoint(
    tiny_bert, tmp_path
):
    backbone = AutoModel.from_pretrained(tiny_bert, add_pooling_layer=False)
    backbone.save_pretrained(tmp_path)
    with pytest.raises(BadInput, match=r"lacks \d tensors .* start from a run of stage 1"):
        load_masked_lm(str(tmp_path))
    lm = load_masked_lm(str(tmp_path), new_output=True)
    assert_same(lm.base_model.state_dict(), backbone.state_dict())
    assert lm.get_output_embeddings().weight is lm.get_input_embeddings().weight
    drawn = lm.cls.predictions
    assert drawn.bias.abs().max() == 0 and drawn.transform.dense.weight.std() > 0
