"""The only encode loop: sentences to vectors, and what bfloat16 costs there."""

import functools
import hashlib
import json
import logging
from collections.abc import Callable
from contextlib import nullcontext

import numpy as np
import torch

from common.errors import NonFinite
from common.progress import progress

logger = logging.getLogger(__name__)
Encoder = Callable[[list[str]], np.ndarray]  # N sentences -> (N, D)
BF16_INSTRUCTIONS = ("avx512_bf16", "amx_bf16")  # of x86; without either, torch widens every product in software
TOKENS_PER_BATCH = 2048  # larger batches do not fit the cache and are slower
TIMES_ON_A_GPU = 16  # as many tokens, which has no such cache and waits for the host with fewer


class Encode:
    """Turn a list of sentences into their vectors, (N, D) float32.

    Distinct sentences are encoded once, sorted by length, so that hardly any padding is computed. Consumes no
    random numbers and leaves the module in the mode it found, so that evaluating never changes training.

    Args:
        module: has `embed(input_ids, attention_mask) -> (B, D)`.
        tokenizer: a Hugging Face tokenizer.
        max_length: tokens per sentence, special ones included; longer sentences are cut.
        bf16: run the module under bfloat16 autocast.
        progress: show a bar, or lines in a file.

    Attributes:
        tokens: how many were encoded so far, special ones included.
        unknown: how many of them were the unknown token.
    """

    def __init__(self, module, tokenizer, max_length: int, bf16: bool = False, progress: bool = False) -> None:
        self.module = module
        self.tokenizer = tokenizer
        self.max_length = max_length
        self.bf16 = bf16
        self.progress = progress
        self.tokens = self.unknown = 0
        if bf16:
            warn_of_slow_bf16(self._device.type)

    @functools.cached_property
    def identity(self) -> str:
        """A hash of all that decides a vector but text and max_length: model, pooling, tokenizer, precision."""
        settings = [getattr(self.module, "pooling", ""), self.bf16, _rules(self.tokenizer), _design(self.module)]
        digest = hashlib.sha256(json.dumps(settings).encode())
        for name, tensor in sorted(self.module.state_dict().items()):
            digest.update(f"{name} {tensor.dtype} {tuple(tensor.shape)}".encode())
            digest.update(tensor.cpu().contiguous().reshape(-1).view(torch.uint8).numpy())
        return digest.hexdigest()

    @torch.no_grad()
    def __call__(self, sentences: list[str]) -> np.ndarray:
        distinct = list(dict.fromkeys(sentences))
        row = {sentence: i for i, sentence in enumerate(distinct)}
        ids = self.tokenizer(distinct, truncation=True, max_length=self.max_length)["input_ids"]
        self.tokens += sum(len(tokens) for tokens in ids)
        self.unknown += sum(tokens.count(self.tokenizer.unk_token_id) for tokens in ids)
        order = np.argsort([-len(tokens) for tokens in ids], kind="stable")
        modes = [(part, part.training) for part in self.module.modules()]
        self.module.eval()
        try:
            # around all batches, because autocast caches cast weights within a context
            with torch.autocast(self._device.type, dtype=torch.bfloat16) if self.bf16 else nullcontext():
                parts = self._parts([ids[i] for i in order])
        finally:
            for part, mode in modes:
                part.training = mode
        vectors = np.empty((len(ids), parts[0].shape[1]), dtype=np.float32)
        vectors[order] = np.concatenate(parts)
        if not np.isfinite(vectors).all():
            raise NonFinite("the model gives vectors that are not finite numbers; its weights are damaged")
        return vectors[[row[sentence] for sentence in sentences]]

    def _parts(self, ids: list[list[int]]) -> list[np.ndarray]:
        """The vectors of a list sorted by falling length, in batches of about equal numbers of tokens."""
        tokens = TOKENS_PER_BATCH * (1 if self._device.type == "cpu" else TIMES_ON_A_GPU)
        parts, start = [], 0
        with progress(len(ids), "encode", "sentence", self.progress) as bar:
            while start < len(ids):
                batch = ids[start : start + max(1, tokens // max(1, len(ids[start])))]
                parts.append(self._embed(batch))
                start += len(batch)
                bar.update(len(batch))
        return parts

    def _embed(self, batch: list[list[int]]) -> np.ndarray:
        least = {} if any(batch) else {"padding": "max_length", "max_length": 1}  # empty texts without special tokens
        padded = self.tokenizer.pad({"input_ids": batch}, return_tensors="pt", **least).to(self._device)
        return self.module.embed(padded["input_ids"], padded["attention_mask"]).float().cpu().numpy()

    @property
    def _device(self) -> torch.device:
        return next(self.module.parameters()).device


def _rules(tokenizer) -> dict:
    """How a tokenizer treats text, without the maximum length; a slow tokenizer has its own `rules`."""
    if not tokenizer.is_fast:
        return tokenizer.rules
    rules = json.loads(tokenizer.backend_tokenizer.to_str())
    return rules | {"truncation": tokenizer.truncation_side, "padding": None}  # set by every call


def _design(module) -> list:
    """The head's layers and the configuration, without where it was stored."""
    config = getattr(module, "config", None)
    settings = config.to_diff_dict() if hasattr(config, "to_diff_dict") else {}
    elsewhere = ("_name_or_path", "transformers_version", "dtype", "sentence_embedding")
    kept = {name: value for name, value in settings.items() if name not in elsewhere}
    return [repr(getattr(module, "head", None)), json.dumps(kept, sort_keys=True, default=str)]


def device_here() -> str:
    """A GPU where there is one."""
    return "cuda" if torch.cuda.is_available() else "cpu"


def unit(vectors: np.ndarray) -> np.ndarray:
    """Rows of length one in float64, (N, D) -> (N, D); a zero row stays zero, so that its cosines are 0."""
    vectors = vectors.astype(np.float64)
    norms = np.linalg.norm(vectors, axis=1, keepdims=True)
    return np.divide(vectors, norms, out=np.zeros_like(vectors), where=norms > 0)


def bf16_is_slow(device: str) -> bool:
    """Whether `--bf16` is slower than float32: on x86 processors without bfloat16 instructions.

    Stage 1 on the small BERT took 6.7 s a step there in bfloat16 and 1.8 s in float32 (results/README.md).
    """
    found = torch.cpu.get_capabilities() if device == "cpu" else {}
    return found.get("architecture") == "x86_64" and not any(found.get(name) for name in BF16_INSTRUCTIONS)


@functools.cache
def warn_of_slow_bf16(device: str) -> None:
    """Log a warning, once a process."""
    if bf16_is_slow(device):
        logger.warning(
            "bf16 on a processor without instructions for it (%s): several times slower than float32; leave --bf16 "
            "out (--bf16 false, or --float32 of python -m papers)",
            ", ".join(BF16_INSTRUCTIONS),
        )
