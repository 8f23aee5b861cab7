"""Checks on a model's folder before the library loads it: only its own files may be read.

A folder is untrusted. What is read from it is written again, and published: so no file is read
through a link that leaves it. transformers follows some keys of config.json to code and other
files: attention and experts to compiled kernels on the hub, adapters to another model, a weight
index to any file. Some numbers in it are how many objects the library makes.

Most published checkpoints of the SimCSE family are pickled, `pytorch_model.bin`. transformers reads
them as it reads safetensors: without prefixes (`bert.`, `roberta.`), with today's names for
`LayerNorm.gamma` and `beta`, and without `position_ids`. Here they are first unpickled as tensors
and nothing else.
"""

import json
import os
import re
from collections.abc import Iterator
from pathlib import Path, PurePosixPath
from typing import Any
from zipfile import is_zipfile

import torch
from huggingface_hub import _CACHED_NO_EXIST, hf_hub_download, try_to_load_from_cache
from huggingface_hub.errors import EntryNotFoundError, LocalEntryNotFoundError
from safetensors import safe_open
from torch import Tensor
from transformers import PreTrainedConfig
from transformers.utils import (
    SAFE_WEIGHTS_INDEX_NAME,
    SAFE_WEIGHTS_NAME,
    WEIGHTS_INDEX_NAME,
    WEIGHTS_NAME,
    cached_file,
    is_peft_available,
)
from transformers.utils.peft_utils import find_adapter_config_file

from common.errors import BadInput
from common.folders import MANIFEST, facts_of

# Without this the library asks a hub service to convert a repository that has no safetensors.
os.environ["DISABLE_SAFETENSORS_CONVERSION"] = "1"
_NOT_FOLLOWED = {
    "quantization_config": "its weights are quantized; save it unquantized",
    "transformers_weights": "it names a weight file; rename that to model.safetensors and remove the key",
    "fusion_config": "it replaces parts of the model; remove the key",
}
_OPTIONAL = {
    "_raise_exceptions_for_missing_entries": False,
    "_raise_exceptions_for_connection_errors": False,
}
_WEIGHTS = (
    SAFE_WEIGHTS_NAME,
    SAFE_WEIGHTS_INDEX_NAME,
    WEIGHTS_NAME,
    WEIGHTS_INDEX_NAME,
)  # the first one is read
_READ = (
    "*.json",
    "*.txt",
    "*.model",
    "*.jinja",
    "additional_chat_templates/*",
)  # and written again
_READ += ("*.safetensors", "*.bin", "*.pt")
_COUNT = re.compile(r"(?P<labels>labels)$|layers?$|blocks$|experts$")  # keys that count objects
_MOST_OBJECTS, _MOST_LABELS = 1_000, 100_000
_ALIKE = 4  # how often a pickle may hold the same numbers; a tied matrix is there twice
_POINTER = b"version https://git-lfs"
_HEAD = "mlp.dense.weight"
# Where SimCSE's script for conversion puts the head of its training; a pooler beside it was never
# trained.
_HEAD_AS_POOLER = {
    r"^(bert|roberta)\.pooler\.": "untrained_pooler.",
    r"^mlp\.dense\.": "pooler.dense.",
}


class Unreachable(BadInput):
    """A file that may be on the hub, which cannot be reached."""


def check_folder(path: str) -> None:
    """Raise BadInput for a folder with a file from elsewhere; a hub id has none."""
    for file in _files_read(Path(path)):
        _check_file(Path(path), file)


def _files_read(root: Path) -> Iterator[Path]:
    """The files of a folder that the libraries read by themselves, links without a target too."""
    for pattern in _READ:
        yield from (file for file in root.glob(pattern) if not file.is_dir())


def _check_file(root: Path, file: Path) -> None:
    if not is_inside(root, file):
        raise BadInput(f"{file}: a link to a file outside the model's folder; copy the file itself")
    if file.is_file() and file.stat().st_size < 1000 and file.read_bytes().startswith(_POINTER):
        raise BadInput(f"{file}: a pointer of Git LFS, not the file; run `git lfs pull` there")


def fetch(path: str, name: str) -> Path | None:
    """A file of a local folder or hub repository; None if it does not exist.

    Raises:
        BadInput: it is not a file of the folder.
        Unreachable: the hub cannot be asked.
    """
    if PurePosixPath(name).is_absolute() or ".." in PurePosixPath(name).parts:
        raise BadInput(f"'{path}': '{name}' is outside the model's folder; refused")
    if Path(path).is_dir():
        file = Path(path) / name
        _check_file(Path(path), file)
        return file if file.is_file() else None
    try:
        return Path(hf_hub_download(path, name))
    except LocalEntryNotFoundError as error:  # an EntryNotFoundError, but the hub was not reached
        if try_to_load_from_cache(path, name) is _CACHED_NO_EXIST:
            return None
        raise Unreachable(
            f"'{path}': cannot check for {name} without the hub; go online once"
        ) from error
    except EntryNotFoundError:
        return None


def check_counts(path: str, config: Any) -> None:
    """Raise BadInput for a config.json that makes the library build a great many objects."""
    for key, value in config.items() if isinstance(config, dict) else ():
        check_counts(path, value)
        found = _COUNT.search(key)
        most = _MOST_LABELS if found and found["labels"] else _MOST_OBJECTS
        if found and isinstance(value, (int, float)) and value > most:
            raise BadInput(f"'{path}': config.json has {key} {value}; at most {most} are supported")


def settle(path: str, config: PreTrainedConfig) -> None:
    """Remove keys from a configuration that would load code, or change the outputs but not the
    vectors.

    Raises:
        BadInput: it has a key without which it would be a different model.
    """
    for name, why in _NOT_FOLLOWED.items():
        if getattr(config, name, None) is not None:
            raise BadInput(f"'{path}': config.json has '{name}': {why}")
    config._attn_implementation = config._experts_implementation = (
        None  # the library's default, for all parts
    )
    config.output_attentions, config.chunk_size_feed_forward = False, 0
    vars(config).pop("auto_map", None)  # names a code file, which a saved copy would not have


def check_weights(path: str) -> bool:
    """Raise BadInput for a folder or hub id with weights elsewhere, an adapter, or a pickle of more
    than tensors.

    Also for a folder of this project that is not as it was written. Return whether the weights are
    pickled.
    """
    root = Path(path)
    check_folder(path)
    if (root / MANIFEST).exists():
        facts_of(root, f"restore it, or remove {MANIFEST} to use the folder as it is")
    if (root.is_dir() or is_peft_available()) and find_adapter_config_file(path) is not None:
        raise BadInput(
            f"'{path}': an adapter (adapter_config.json); merge it into its model and save that"
        )
    file = _weights_file(path)
    old = file is not None and file.name in (WEIGHTS_NAME, WEIGHTS_INDEX_NAME)
    if file is not None and file.suffix == ".json":
        _check_index(file, ".bin" if old else ".safetensors")
    if old:
        _stored_names(path, file)
    return old


def is_inside(folder: Path, file: Path) -> bool:
    """Whether a file, links followed, is below a folder or, for a folder of the hub's cache, one of its blobs."""
    root, target = folder.resolve(), file.resolve()
    return target.is_relative_to(root) or (
        root.parent.name == "snapshots" and target.parent == root.parents[1] / "blobs"
    )


def _check_index(index: Path, suffix: str) -> None:
    names = set(json.loads(index.read_text(encoding="utf-8"))["weight_map"].values())
    for name in names:
        plain = isinstance(name, str) and PurePosixPath(name).name == name and name.endswith(suffix)
        if not plain:
            raise BadInput(
                f"{index}: '{str(name)[:80]}' is not a {suffix[1:]} file of this folder; refused"
            )


def _weights_file(path: str) -> Path | None:
    """The weights, or their index, that transformers reads from a folder or hub id; None if there are none."""
    files = (cached_file(path, name, **_OPTIONAL) for name in _WEIGHTS)
    return next((Path(file) for file in files if file is not None), None)


def _stored_names(path: str, file: Path) -> set[str]:
    """The names of all tensors in a checkpoint whose weights, or index, are `file`; pickles are read for them."""
    if file.name == SAFE_WEIGHTS_NAME:
        with safe_open(file, "pt") as tensors:
            return {*tensors.keys()}
    if file.name == WEIGHTS_NAME:
        return {*unpickled(file)}
    index = json.loads(file.read_text(encoding="utf-8"))["weight_map"]
    if file.name == WEIGHTS_INDEX_NAME:
        for part in sorted({*index.values()}):
            unpickled(Path(cached_file(path, part)))
    return {*index}


def unpickled(file: Path) -> dict[str, Tensor]:
    """The tensors of a pickle, read with `weights_only`.

    Raises:
        BadInput: it is damaged, holds more than named tensors, or they are larger than itself: a
            tensor can repeat a few numbers.
    """
    try:
        tensors = torch.load(file, map_location="cpu", weights_only=True, mmap=is_zipfile(file))
        if not all(isinstance(value, Tensor) for value in tensors.values()):
            raise TypeError("not a tensor")
    except Exception as error:  # a damaged file can make the restricted unpickler raise anything
        raise BadInput(
            f"{file}: damaged, or contains more than weights; refused, and no code of it was run"
        ) from error
    size = sum(value.numel() * value.element_size() for value in tensors.values())
    if size > _ALIKE * file.stat().st_size:
        raise BadInput(f"{file}: its tensors repeat their numbers, to {size:,} bytes; refused")
    return tensors


def head_as_pooler(path: str) -> dict[str, dict[str, str]]:
    """The option of `from_pretrained` that reads SimCSE's `mlp.dense`, if a checkpoint still has it, as the pooler."""
    file = _weights_file(path)
    return (
        {"key_mapping": _HEAD_AS_POOLER}
        if file is not None and _HEAD in _stored_names(path, file)
        else {}
    )
