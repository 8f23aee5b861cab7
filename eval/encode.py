"""The only encode loop: sentences to vectors."""

import copy
import functools
import hashlib
import json
import os
from collections.abc import Callable
from typing import Any

import numpy as np
import torch

from common.errors import NonFinite
from common.files import digest
from common.progress import progress

Encoder = Callable[[list[str]], np.ndarray]  # N sentences -> (N, D)
TOKENS_PER_BATCH = 2048  # larger batches do not fit the CPU's cache and are slower
GPU_FACTOR = 16  # larger batches on a GPU: with fewer tokens it waits for the host
# x86; without either, torch emulates bfloat16 in software
_BF16_INSTRUCTIONS = ("avx512_bf16", "amx_bf16")


class Encode:
    """Turn a list of sentences into their vectors, (N, D) float32.

    Distinct sentences are encoded once, sorted by length to avoid padding. Consumes no random
    numbers and restores the module's train/eval mode, so that evaluation never changes training.

    Args:
        module: has `embed(input_ids, attention_mask) -> (B, D)` and `max_length`: tokens per
            sentence, special tokens included; longer sentences are truncated.
        tokenizer: a Hugging Face tokenizer.
        bf16: run the module under bfloat16 autocast.
        progress: show a progress bar, or lines in a file.

    Attributes:
        prompt: put before every text: the model's default prompt or, in `of(role)`, the role's.
    """

    def __init__(self, module, tokenizer, *, bf16: bool = False, progress: bool = False) -> None:
        self.prompt = _prompt(module, None)
        self.module = module
        self.tokenizer = tokenizer
        self.max_length: int = module.max_length
        self.bf16 = bf16
        self.progress = progress

    def of(self, role: str) -> "Encode":
        """The same encoder with the model's prompt for a role, `query` or `document`."""
        other = copy.copy(self)
        other.prompt = _prompt(self.module, role)
        return other

    @property
    def settings(self) -> dict[str, Any]:
        """How text without a role becomes vectors; recorded with every score."""
        settings = {
            "pooling": getattr(self.module, "pooling", None),
            "max_length": self.max_length,
            "bf16": self.bf16,
        }
        if self.prompt:
            settings["prompts"] = {"default": self.prompt}
        return settings

    @property
    def identity(self) -> str:
        """A hash of everything that determines a vector except text and max_length."""
        return digest([self._identity, self.prompt]) if self.prompt else self._identity

    @functools.cached_property
    def _identity(self) -> str:
        settings = [
            getattr(self.module, "pooling", ""),
            self.bf16,
            _rules(self.tokenizer),
            _design(self.module),
        ]
        total = hashlib.sha256(json.dumps(settings).encode())
        for name, tensor in sorted(self.module.state_dict().items()):
            total.update(f"{name} {tensor.dtype} {tuple(tensor.shape)}".encode())
            total.update(tensor.cpu().contiguous().reshape(-1).view(torch.uint8).numpy())
        return total.hexdigest()

    @torch.no_grad()
    def __call__(self, sentences: list[str]) -> np.ndarray:
        distinct = list(dict.fromkeys(sentences))
        row = {sentence: i for i, sentence in enumerate(distinct)}
        texts = [self.prompt + sentence for sentence in distinct]
        ids = self.tokenizer(texts, truncation=True, max_length=self.max_length)["input_ids"]
        order = np.argsort([-len(tokens) for tokens in ids], kind="stable")
        modes = [(part, part.training) for part in self.module.modules()]
        self.module.eval()
        try:
            # one context for all batches, because autocast caches the cast weights within a context
            with torch.autocast(self._device.type, torch.bfloat16, enabled=self.bf16):
                parts = self._parts([ids[i] for i in order])
        finally:
            for part, mode in modes:
                part.training = mode
        vectors = np.empty((len(ids), parts[0].shape[1]), dtype=np.float32)
        vectors[order] = np.concatenate(parts)
        if not np.isfinite(vectors).all():
            raise NonFinite(
                "the model returns vectors that are not finite; its weights are damaged"
            )
        return vectors[[row[sentence] for sentence in sentences]]

    def _parts(self, ids: list[list[int]]) -> list[np.ndarray]:
        """The vectors of a list sorted by descending length, in batches of about equal size."""
        tokens = TOKENS_PER_BATCH * (1 if self._device.type == "cpu" else GPU_FACTOR)
        parts, start = [], 0
        with progress(len(ids), "encode", "sentence", self.progress) as bar:
            while start < len(ids):
                batch = ids[start : start + max(1, tokens // max(1, len(ids[start])))]
                parts.append(self._embed(batch))
                start += len(batch)
                bar.update(len(batch))
        return parts

    def _embed(self, batch: list[list[int]]) -> np.ndarray:
        options: dict[str, Any] = {}
        if not any(batch):  # empty texts, to which the tokenizer adds no special token
            options = {"padding": "max_length", "max_length": 1}
        padded = self.tokenizer.pad({"input_ids": batch}, return_tensors="pt", **options)
        padded = padded.to(self._device)
        vectors = self.module.embed(padded["input_ids"], padded["attention_mask"])
        return vectors.float().cpu().numpy()

    @property
    def _device(self) -> torch.device:
        return next(self.module.parameters()).device


def as_role(encode: Encoder, role: str) -> Encoder:
    """The encoder for texts of a role (`query`, `document`); a plain function encodes all alike."""
    return encode.of(role) if hasattr(encode, "of") else encode


def _prompt(module, role: str | None) -> str:
    return module.prompt_of(role) if hasattr(module, "prompt_of") else ""


def _rules(tokenizer) -> dict:
    """How a tokenizer treats text, without the maximum length and what changes with every call."""
    rules = json.loads(tokenizer.backend_tokenizer.to_str())
    return rules | {"truncation": tokenizer.truncation_side, "padding": None}


def _design(module) -> list:
    """The head's layers and the configuration, without what depends on how it was saved."""
    config: Any = getattr(module, "config", None)
    settings = config.to_diff_dict() if hasattr(config, "to_diff_dict") else {}
    ignored = ("_name_or_path", "transformers_version", "dtype", "sentence_embedding")
    kept = {name: value for name, value in settings.items() if name not in ignored}
    return [repr(getattr(module, "head", None)), json.dumps(kept, sort_keys=True, default=str)]


def bf16_here(device: str) -> bool:
    """Whether the GPU or, for any other device, the processor computes in bfloat16 itself."""
    if device.startswith("cuda"):
        return torch.cuda.is_bf16_supported(including_emulation=False)
    return any(torch.cpu.get_capabilities().get(name) for name in _BF16_INSTRUCTIONS)


def device_here() -> str:
    """`cuda` if available, else `cpu`; of several GPUs that of this process of a launcher."""
    if not torch.cuda.is_available():
        return "cpu"
    local = os.environ.get("LOCAL_RANK")
    return f"cuda:{local}" if local and torch.cuda.device_count() > 1 else "cuda"
