"""Folders of models, damaged: how they pool, their heads, Condenser's checkpoint, weights.

A parser returns a value or raises an error of one line. Each test makes 200 examples;
FUZZ_EXAMPLES=100000 in the environment makes as many.
"""

import io
import json
import os
import shutil
from functools import partial
from pathlib import Path

import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from safetensors.torch import save
from transformers import BertConfig, BertForMaskedLM, BertModel

from common.errors import ProjectError
from models.auxiliary import CONDENSER_FILE, HEAD_FILE, load_head, new_head
from models.heads import Dense
from models.loading import load_backbone
from models.saved_format import Described, read_modules, write_modules

EXAMPLES = int(os.environ.get("FUZZ_EXAMPLES", "200"))
MANY = settings(max_examples=EXAMPLES, deadline=None, suppress_health_check=list(HealthCheck))
_BYTES = [b"\n", b"\r", b"\t", b" ", b"\x00", b"\xff", b"\xef\xbb\xbf", b"\xc3"]
_BYTES += [b"-", b"nan", b"1e999", b'"', b"{", b"["]
_ODD = [None, True, 0, -1, 3, 1.5, 10**30, 10**400, float("nan"), float("inf")]
_ODD += ["", "x", "a\nb", "\ud800", "../x", [], [[]], [1], {}, {"a": 1}, [{}], ["x", "x"]]


@st.composite
def damaged(draw, valid, scraps=()):
    """Random bytes, or a valid file after one to four edits, with `scraps` among them."""
    if draw(st.integers(0, 4)) == 0:
        return draw(st.binary(max_size=60))
    content = bytearray(valid)
    for _ in range(draw(st.integers(1, 4))):
        start = draw(st.integers(0, len(content)))
        stop = min(start + draw(st.sampled_from([0, 1, 2, 8, 64, 1 << 20])), len(content))
        known = st.sampled_from([b"", bytes(content[start:stop]) * 2, *_BYTES, *scraps])
        new = draw(known | st.binary(max_size=4))
        content[start:stop] = new
    return bytes(content)


@st.composite
def altered(draw, valid):
    """A JSON value in which one to three parts are replaced, removed or added."""
    content = json.loads(json.dumps(valid))
    for _ in range(draw(st.integers(1, 3))):
        parts = [(None, None), *_parts(content)]
        parent, key = parts[draw(st.integers(0, len(parts) - 1))]
        odd = json.loads(json.dumps(draw(st.sampled_from(_ODD))))
        if parent is None:
            if draw(st.integers(0, 9)) == 0:
                content = odd
        elif draw(st.booleans()):
            parent[key] = odd
        elif isinstance(parent, dict):
            parent[draw(st.sampled_from(["", "new", str(key).upper()]))] = parent.pop(key)
        else:
            parent.insert(key, parent[key])
    return content


def _parts(content):
    """(container, key) of every part."""
    if isinstance(content, dict | list):
        for key in list(content) if isinstance(content, dict) else range(len(content)):
            yield content, key
            yield from _parts(content[key])


def as_json(valid):
    """The bytes of an altered JSON value, or of a damaged file of it."""
    changed = altered(valid).map(lambda content: json.dumps(content).encode())
    return changed | damaged(json.dumps(valid).encode(), [b"[" * 5000])


def result(parse, *arguments):
    """What the parser returns; None where it refuses its input as it should."""
    try:
        return parse(*arguments)
    except ProjectError as refusal:
        assert len(str(refusal).splitlines()) == 1, repr(str(refusal))


_OURS = {"format": 1, "pooling": "avg", "head": 1, "max_length": 32}
_SIZES = {"hidden_size": 8, "num_hidden_layers": 1, "num_attention_heads": 2}
_SIZES |= {"intermediate_size": 8, "vocab_size": 9}
_PICKLED = [b"c__builtin__\nopen\n", b"\x80\x02", b".", b"R", b"(", b"\x8a", b"PK\x03\x04"]
_PICKLED += [b"N.", b"]."]
DESCRIBED = """modules.json 1_Pooling/config.json 2_Dense/config.json
    sentence_bert_config.json""".split()
TENSORS = "2_Dense/model.safetensors"


@pytest.fixture(scope="module")
def saved(tmp_path_factory):
    """A folder in both layouts: sentence-transformers' modules, and our head."""
    folder = tmp_path_factory.mktemp("saved")
    backbone = BertModel(BertConfig(**_SIZES), add_pooling_layer=False)
    described = Described("avg", [Dense(torch.nn.Linear(8, 4), "Tanh")], 32)
    write_modules(folder, described, backbone, None)
    return folder


def _fresh(folder, spot):
    """A new copy in place of the last one, whose tensors may still be mapped."""
    shutil.rmtree(spot / "model", ignore_errors=True)
    return Path(shutil.copytree(folder, spot / "model"))


def _described(folder, **config):
    (folder / "config.json").write_text(json.dumps(config))
    parsed = result(read_modules, str(folder))
    if parsed is None:
        return
    assert isinstance(parsed, Described) and isinstance(parsed.pooling, str)
    assert parsed.max_length is None or parsed.max_length >= 0
    for module in parsed.head:
        for value in module.state_dict().values():
            assert value.device.type == "cpu" and value.isfinite().all()


@MANY
@given(st.data())
def test_a_folder_in_either_layout_is_read_or_refused(saved, tmp_path, data):
    """Our entry in config.json, sentence-transformers' files, and the tensors of the head."""
    folder = _fresh(saved, tmp_path)
    name = data.draw(st.sampled_from(["ours", *DESCRIBED, TENSORS]))
    if name == "ours":
        _described(folder, sentence_embedding=data.draw(altered(_OURS)))
        return
    whole = (saved / name).read_bytes()
    if name == TENSORS:
        content = data.draw(damaged(whole, [b"F16", b"I64", b"[4]", b"\x7f\xc0"]))
    else:
        content = data.draw(as_json(json.loads(whole)))
    (folder / name).write_bytes(content)
    _described(folder)
    _described(folder, sentence_embedding=_OURS)


@pytest.fixture(scope="module")
def weights(tmp_path_factory):
    """A folder without weights, and the files that may stand there: name, content, its reader."""
    folder, model = tmp_path_factory.mktemp("weights"), BertForMaskedLM(BertConfig(**_SIZES))
    model.config.save_pretrained(folder)
    backbone, body = model.base_model, {n: p.clone() for n, p in model.state_dict().items()}
    head = {f"c_head.{name}": p for name, p in new_head(backbone, 1).state_dict().items()}
    read_head = partial(load_head, backbone=backbone, count=1, skip_from=1)
    files = [(HEAD_FILE, save(head), read_head), ("model.safetensors", save(body), load_backbone)]
    for name, state, read in (
        (CONDENSER_FILE, head, read_head),
        ("pytorch_model.bin", body, load_backbone),
    ):
        for new in (True, False):  # of two versions of torch
            stream = io.BytesIO()
            torch.save(state, stream, _use_new_zipfile_serialization=new)
            files.append((name, stream.getvalue(), read))
    return folder, files


@pytest.mark.filterwarnings("ignore:Detected pickle protocol")
@settings(MANY, max_examples=2 * EXAMPLES)
@given(st.integers(0, 5), st.data())
def test_damaged_weights_of_a_backbone_or_a_head_are_read_whole_or_refused(
    weights, tmp_path, number, data
):
    folder, files = weights
    name, valid, read = files[number]
    folder = _fresh(folder, tmp_path)
    scraps = [b"F16", b"[8]", b"[9,8]"] if name.endswith("safetensors") else _PICKLED
    (folder / name).write_bytes(data.draw(damaged(valid, scraps)))
    made = result(read, str(folder))
    if made is not None:
        assert all(value.isfinite().all() for value in made.state_dict().values())
