"""The import of Condenser's layout, a head that does not fit, a new output head."""

import shutil

import pytest
import torch
from transformers import AutoModel

from common.errors import BadInput
from models.auxiliary import load_head, load_masked_lm, new_head


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
def test_a_head_that_does_not_fill_all_tensors_is_refused(tiny_bert, tmp_path, drop, extra, layers):
    write_condenser(tiny_bert, tmp_path, drop, extra)
    with pytest.raises(BadInput, match=r"auxiliary head|dense\.bias' is not finite"):
        load_head(str(tmp_path), load_masked_lm(str(tmp_path)).base_model, layers, 2)


def test_a_new_output_head_is_drawn_and_shares_the_checkpoint_s_embeddings(tiny_bert, tmp_path):
    backbone = AutoModel.from_pretrained(tiny_bert, add_pooling_layer=False)
    backbone.save_pretrained(tmp_path)
    lm = load_masked_lm(str(tmp_path), new_output=True)
    assert_same(lm.base_model.state_dict(), backbone.state_dict())
    assert lm.get_output_embeddings().weight is lm.get_input_embeddings().weight
    drawn = lm.cls.predictions
    assert drawn.bias.abs().max() == 0 and drawn.transform.dense.weight.std() > 0
