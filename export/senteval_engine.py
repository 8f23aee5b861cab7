"""Evaluate our encoders with SentEval's own engine (facebookresearch/SentEval, or SimCSE's copy of it).

SentEval is not on a package index. With a checkout on the path:

    import senteval
    encoder, tokenizer = load_encoder("runs/infocse")
    prepare, batcher = hooks(Encode(encoder, tokenizer))
    engine = senteval.engine.SE({"task_path": "corpora/senteval", "usepytorch": True, "kfold": 10}, batcher, prepare)
    engine.eval(["STS12", "MR"])

SimCSE's copy has the STS protocol of `eval/sts.py`; the original trains a regressor for STS-B and SICK-R.
"""

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from eval.encode import Encoder

Tokens = Sequence[str | bytes]


def hooks(encode: Encoder) -> tuple[Callable[[Any, Sequence[Tokens]], None], Callable[..., np.ndarray]]:
    """`prepare` and `batcher`, the two functions that SentEval's engine calls.

    `prepare(params, samples)` does nothing, because the tokenizer is fixed. `batcher(params, batch)` joins each list of
    tokens with spaces, as SimCSE does, and returns an (N, D) array. A sentence without tokens is the empty text, as in
    `python -m eval`, so that the scores agree; SentEval's examples use "." because they sum word vectors. Tokens given
    as bytes are decoded as UTF-8.
    """

    def prepare(params: Any, samples: Sequence[Tokens]) -> None:
        return None

    def batcher(params: Any, batch: Sequence[Tokens]) -> np.ndarray:
        return encode([" ".join(map(_text, tokens)) for tokens in batch])

    return prepare, batcher


def _text(token: str | bytes) -> str:
    return token.decode("utf-8") if isinstance(token, bytes) else token
