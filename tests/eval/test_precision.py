"""What is said of bfloat16 where the processor cannot multiply it."""

import pytest
import torch

from eval import encode
from eval.encode import Encode
from models.encoder import load_encoder

OLD = {"architecture": "x86_64", "avx512_f": True, "avx512_bf16": False, "amx_bf16": False}
CASES = [(OLD, True), (OLD | {"avx512_bf16": True}, False), (OLD | {"amx_bf16": True}, False),
         ({"architecture": "x86_64"}, True), ({"architecture": "aarch64"}, False)]  # fmt: skip


@pytest.mark.parametrize(("found", "slow"), CASES)
def test_only_an_x86_processor_without_the_instructions_is_slow(monkeypatch, found, slow):
    monkeypatch.setattr(torch.cpu, "get_capabilities", lambda: found)
    assert encode.bf16_is_slow("cpu") is slow
    assert not encode.bf16_is_slow("cuda")


def test_torch_names_the_instructions_so():
    found = torch.cpu.get_capabilities()
    assert found["architecture"] != "x86_64" or set(encode.BF16_INSTRUCTIONS) <= set(found)


def test_it_is_said_once_and_only_of_bf16(monkeypatch, caplog, tiny_bert):
    monkeypatch.setattr(torch.cpu, "get_capabilities", lambda: OLD)
    encoder, tokenizer = load_encoder(tiny_bert, "avg")
    encode.warn_of_slow_bf16.cache_clear()
    Encode(encoder, tokenizer, 32)
    assert not caplog.records
    Encode(encoder, tokenizer, 32, bf16=True)
    Encode(encoder, tokenizer, 32, bf16=True)
    assert [record.getMessage() for record in caplog.records] == [caplog.records[0].getMessage()]
    assert "avx512_bf16, amx_bf16" in caplog.text and "--bf16" in caplog.text
    encode.warn_of_slow_bf16.cache_clear()
