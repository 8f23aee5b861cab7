"""The folder of a model: which files are read from it, and what is refused in them.

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
import re
from pathlib import Path, PurePosixPath
from typing import Any
from zipfile import is_zipfile

import torch
from huggingface_hub import _CACHED_NO_EXIST, hf_hub_download, try_to_load_from_cache
from huggingface_hub.errors import EntryNotFoundError, LocalEntryNotFoundError
from safetensors import SafetensorError, safe_open
from safetensors.torch import load_file
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
from common.files import read_json, sha256
from common.folders import MANIFEST, SMALL, facts_of

# 1. Files.

# Those that the libraries read by themselves, and those that determine the vectors.
_READ = """*.json *.txt *.model *.jinja *.safetensors *.bin *.pt
    additional_chat_templates/*""".split()
_HASHED = """config.json tokenizer*.json special_tokens_map.json added_tokens.json vocab.*
    merges.txt *.model *.safetensors *.safetensors.index.json pytorch_model*.bin
    pytorch_model.bin.index.json model.pt modules.json sentence_bert_config.json
    */config.json */*.safetensors""".split()
_POINTER = b"version https://git-lfs"


class Unreachable(BadInput):
    """A file that may be on the hub, which cannot be reached."""


def check_folder(path: str) -> None:
    """Raise BadInput for a folder with a file from elsewhere; a hub id has none."""
    root = Path(path)
    for pattern in _READ:
        for file in root.glob(pattern):  # links without a target too
            if not file.is_dir():
                _check_file(root, file)


def _refuse_changed(path: str, hashed: int | None = None) -> None:
    """Raise BadInput for a folder that is not as this project wrote it; see `folders.problem`."""
    root = Path(path)
    if (root / MANIFEST).exists():
        facts_of(root, f"restore it, or remove {MANIFEST} to use the folder as it is", hashed)


def _check_file(root: Path, file: Path) -> None:
    root, target = root.resolve(), file.resolve()
    # In a folder of the hub's cache the files are links to its blobs.
    cached = root.parent.name == "snapshots" and target.parent == root.parents[1] / "blobs"
    if not (cached or target.is_relative_to(root)):
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
        try:
            _check_file(Path(path), file)
            return file if file.is_file() else None
        except (OSError, ValueError) as error:
            raise BadInput(f"'{path}': no file can be named '{name[:80]}'") from error
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


def read(path: str, name: str, expected: type = dict) -> Any:
    """A JSON file of a folder or hub repository, an object or another type; None without it."""
    file = fetch(path, name)
    return file and read_json(
        file, "a description of the model", "copy the whole folder again", expected
    )


def tokenizer_files(path: str) -> tuple[Path | None, dict[str, Any]]:
    """The tokenizer.json of a folder or hub id, None without one, and its tokenizer_config.json."""
    check_folder(path)
    try:
        return fetch(path, "tokenizer.json"), read(path, "tokenizer_config.json") or {}
    except Unreachable:  # then transformers does not read it either
        return None, {}


def hashes_of(path: str) -> dict[str, str]:
    """The sha256 of every file that determines a local model, by name; {} for anything else.

    A configuration may be a JSON file by itself.
    """
    root = Path(path)
    if root.suffix == ".json" and root.is_file():
        return {root.name: sha256(root)}
    if not (root / "config.json").is_file():
        return {}
    files = {file for pattern in _HASHED for file in root.glob(pattern) if file.is_file()}
    names = {str(file.relative_to(root)): file for file in sorted(files)}
    return {name: sha256(file) for name, file in names.items() if not is_state(name)}


def is_state(name: str) -> bool:
    """Whether a file of a run is in a checkpoint or `best/`, which may go without changing it."""
    return re.search(r"(^|[ /])(checkpoint-[0-9]+|best)/", name) is not None  # "1 FILE" in lists


# 2. config.json.

_COUNT = re.compile(r"(?P<labels>labels)$|layers?$|blocks$|experts$")  # keys that count objects
_MOST_OBJECTS, _MOST_LABELS = 1_000, 100_000
_NOT_FOLLOWED = {
    "quantization_config": "its weights are quantized; save it unquantized",
    "transformers_weights": "it names a weight file; rename that to model.safetensors and remove "
    "the key",
    "fusion_config": "it replaces parts of the model; remove the key",
}


def check_config(path: str) -> None:
    """Raise BadInput for a folder or a config.json that the library should not read."""
    check_folder(path)
    _refuse_changed(path, SMALL)  # `weights_of` reads the large files
    _check_counts(path, PreTrainedConfig.get_config_dict(path)[0])


def _check_counts(path: str, config: Any) -> None:
    """Refuse a configuration that makes the library build a great many objects."""
    for key, value in config.items() if isinstance(config, dict) else ():
        _check_counts(path, value)
        found = _COUNT.search(key)
        most = _MOST_LABELS if found and found["labels"] else _MOST_OBJECTS
        if found and isinstance(value, (int, float)) and value > most:
            raise BadInput(f"'{path}': config.json has {key} {value}; at most {most} are supported")


def settle(path: str, config: PreTrainedConfig) -> None:
    """Remove keys from a configuration that would load code, or change only other outputs.

    Raises:
        BadInput: it has a key without which it would be a different model.
    """
    for name, why in _NOT_FOLLOWED.items():
        if getattr(config, name, None) is not None:
            raise BadInput(f"'{path}': config.json has '{name}': {why}")
    # The library's default, for all parts.
    config._attn_implementation = config._experts_implementation = None
    config.output_attentions, config.chunk_size_feed_forward = False, 0
    config.return_dict = True
    if config.model_type == "big_bird":  # a short text would switch it, and for good
        config.attention_type = "original_full"
    vars(config).pop("auto_map", None)  # names a code file, which a saved copy would not have


# 3. Weights.

_OPTIONAL = {
    "_raise_exceptions_for_missing_entries": False,
    "_raise_exceptions_for_connection_errors": False,
}
_WEIGHTS = (  # the first one is read
    SAFE_WEIGHTS_NAME,
    SAFE_WEIGHTS_INDEX_NAME,
    WEIGHTS_NAME,
    WEIGHTS_INDEX_NAME,
)
_ALIKE = 4  # how often a pickle may hold the same numbers; a tied matrix is there twice
_HEAD = "mlp.dense.weight"
# Where SimCSE's script for conversion puts the head of its training; a pooler beside it was never
# trained.
_HEAD_AS_POOLER = {
    r"^(bert|roberta)\.pooler\.": "untrained_pooler.",
    r"^mlp\.dense\.": "pooler.dense.",
}


def weights_of(path: str) -> Path:
    """The weights of a folder or hub id, or their index; all files that it names are there.

    Raises:
        BadInput: there are none, they are elsewhere, an adapter's, a pickle of more than tensors,
            or the folder is one of this project, and not as it was written.
    """
    root = Path(path)
    check_folder(path)
    _refuse_changed(path)
    if (root.is_dir() or is_peft_available()) and find_adapter_config_file(path) is not None:
        raise BadInput(
            f"'{path}': an adapter (adapter_config.json); merge it into its model and save that"
        )
    found = (cached_file(path, name, **_OPTIONAL) for name in _WEIGHTS)
    file = next((Path(name) for name in found if name is not None), None)
    if file is None:
        raise BadInput(f"'{path}': has no weights ({SAFE_WEIGHTS_NAME} or {WEIGHTS_NAME})")
    for part in _parts(path, file):
        if part.suffix == ".bin":
            unpickled(part)
    return file


def _parts(path: str, file: Path) -> list[Path]:
    """The files of weights, which their index names, if there is one."""
    if file.suffix != ".json":
        return [file]
    suffix = ".bin" if file.name == WEIGHTS_INDEX_NAME else ".safetensors"
    parts = []
    for name in sorted(map(str, set(_index(file).values()))):
        if PurePosixPath(name).name != name or not name.endswith(suffix):
            raise BadInput(
                f"{file}: '{name[:80]}' is not a {suffix[1:]} file of this folder; refused"
            )
        parts.append(Path(str(cached_file(path, name))))
    return parts


def _index(file: Path) -> dict[str, str]:
    return json.loads(file.read_text(encoding="utf-8"))["weight_map"]


def unpickled(file: Path) -> dict[str, Tensor]:
    """The tensors of a pickle, read with `weights_only`.

    Raises:
        BadInput: it is damaged, holds more than named tensors, or they are larger than itself: a
            tensor can repeat a few numbers.
    """
    try:
        tensors = torch.load(file, map_location="cpu", weights_only=True, mmap=is_zipfile(file))
        for value in tensors.values():
            if not (isinstance(value, Tensor) and value.is_cpu and value.layout == torch.strided):
                raise TypeError("not a tensor with its numbers")
    except Exception as error:  # a damaged file can make the restricted unpickler raise anything
        raise BadInput(
            f"{file}: damaged, or contains more than weights; refused, and no code of it was run"
        ) from error
    size = sum(value.numel() * value.element_size() for value in tensors.values())
    if size > _ALIKE * file.stat().st_size:
        raise BadInput(f"{file}: its tensors repeat their numbers, to {size:,} bytes; refused")
    return tensors


def read_tensors(file: Path) -> dict[str, Tensor]:
    """Read the tensors of a safetensors file or a pickle; BadInput if damaged or not finite."""
    if file.suffix != ".safetensors":
        tensors = unpickled(file)
    else:
        try:
            tensors = load_file(file)
        except (OSError, KeyError, SafetensorError) as error:  # KeyError: an unknown dtype
            raise BadInput(
                f"{file}: incomplete or no safetensors file ({error}); copy it again"
            ) from error
    check_finite(file, tensors)
    return tensors


def check_finite(file: Path | str, tensors: dict[str, Tensor]) -> None:
    """Raise BadInput for the first tensor that contains NaN or infinity."""
    for name, tensor in tensors.items():
        if tensor.is_floating_point() and not tensor.float().isfinite().all():
            raise BadInput(f"{file}: tensor '{name}' is not finite; the weights are damaged")


def head_as_pooler(file: Path) -> dict[str, dict[str, str]]:
    """The option of `from_pretrained` that reads SimCSE's `mlp.dense` as the pooler.

    {} for weights that no longer have it.
    """
    if file.suffix == ".json":
        names = {*_index(file)}
    elif file.suffix == ".bin":
        names = {*unpickled(file)}
    else:
        with safe_open(file, "pt") as tensors:
            names = {*tensors.keys()}
    return {"key_mapping": _HEAD_AS_POOLER} if _HEAD in names else {}
