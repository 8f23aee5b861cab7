"""Weights as PyTorch pickles them, `pytorch_model.bin`: the format of most published checkpoints of the SimCSE family.

transformers reads them as it reads safetensors: without prefixes (`bert.`, `roberta.`), with today's names for
`LayerNorm.gamma` and `beta`, and without `position_ids`. Here they are first unpickled as tensors and nothing else.
"""

import json
from pathlib import Path
from zipfile import is_zipfile

import torch
from safetensors import safe_open
from torch import Tensor
from transformers.utils import SAFE_WEIGHTS_INDEX_NAME, SAFE_WEIGHTS_NAME, WEIGHTS_INDEX_NAME, WEIGHTS_NAME, cached_file

from common.errors import BadInput

OPTIONAL = {"_raise_exceptions_for_missing_entries": False, "_raise_exceptions_for_connection_errors": False}
_IN_ORDER = (SAFE_WEIGHTS_NAME, SAFE_WEIGHTS_INDEX_NAME, WEIGHTS_NAME, WEIGHTS_INDEX_NAME)
_HEAD = "mlp.dense.weight"
# Where SimCSE's script for conversion puts the head of its training; a pooler beside it was never trained.
_HEAD_AS_POOLER = {r"^(bert|roberta)\.pooler\.": "untrained_pooler.", r"^mlp\.dense\.": "pooler.dense."}


def weights_file(path: str) -> Path | None:
    """The weights, or their index, that transformers reads from a folder or hub id; None if there are none."""
    found = (cached_file(path, name, **OPTIONAL) for name in _IN_ORDER)
    return next((Path(file) for file in found if file is not None), None)


def is_old(file: Path | None) -> bool:
    """Whether weights are pickled."""
    return file is not None and file.name in (WEIGHTS_NAME, WEIGHTS_INDEX_NAME)


def stored_names(path: str, file: Path) -> set[str]:
    """The names of all tensors in a checkpoint whose weights, or index, are `file`.

    Pickles are read with `weights_only`: BadInput if one is damaged, would run code, or holds more than tensors.
    """
    if file.name == SAFE_WEIGHTS_NAME:
        with safe_open(file, "pt") as tensors:
            return {*tensors.keys()}
    if file.name == WEIGHTS_NAME:
        return _unpickled(file)
    index = json.loads(file.read_text(encoding="utf-8"))["weight_map"]
    if file.name == WEIGHTS_INDEX_NAME:
        for part in sorted({*index.values()}):
            _unpickled(Path(cached_file(path, part)))
    return {*index}


def _unpickled(file: Path) -> set[str]:
    try:
        tensors = torch.load(file, map_location="cpu", weights_only=True, mmap=is_zipfile(file))
    except Exception as error:  # a damaged file can make the restricted unpickler raise anything
        raise BadInput(f"{file}: damaged, or contains more than weights; refused, and no code of it was run") from error
    if not isinstance(tensors, dict) or not all(isinstance(value, Tensor) for value in tensors.values()):
        raise BadInput(f"{file}: contains more than named tensors; refused")
    return {*tensors}


def head_as_pooler(path: str) -> dict[str, dict[str, str]]:
    """The option of `from_pretrained` that reads SimCSE's `mlp.dense`, if a checkpoint still has it, as the pooler."""
    file = weights_file(path)
    return {"key_mapping": _HEAD_AS_POOLER} if file is not None and _HEAD in stored_names(path, file) else {}


def left_out(names: set[str], prefix: str) -> str:
    """The parts of a checkpoint that the model does not have, for a log line: `lm_head, mlp, pooler`."""
    parts = {name.removeprefix(f"{prefix}.").split(".")[0] for name in names}
    return ", ".join(sorted(parts)) or "nothing"
