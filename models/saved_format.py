"""How a saved model turns token states into a vector: its pooling, head and prompts.

They stand in config.json (`sentence_embedding`), and in sentence-transformers' modules. Reading:
what would change a vector silently is refused. Writing: the pooling file is written in both
schemas, since text-embeddings-inference needs the old booleans and current sentence-transformers
the new name; type strings are in the old form, which every version imports.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Mapping, Sequence
from pathlib import Path, PurePosixPath
from types import UnionType
from typing import TYPE_CHECKING, Any, NamedTuple

import torch
from safetensors.torch import save_file
from torch import nn

from common.errors import BadInput, brief, newer_format
from common.files import write_json
from models.families import without_pooler
from models.folder import Unreachable, fetch, read, read_tensors
from models.heads import ACTIVATIONS, Dense, Normalize
from models.pooling import POOLINGS, Pooling

if TYPE_CHECKING:
    from transformers import PreTrainedModel

logger = logging.getLogger(__name__)
FORMAT = 1
_TYPES = "sentence_transformers.models."
_SETTINGS = "config_sentence_transformers.json"
_LOADING = "sentence_bert_config.json"
# `models.Pooling`, `models.Pooling.Pooling`, `sentence_transformer.modules.pooling.Pooling`, by
# version.
_TYPE = re.compile(
    r"sentence_transformers\.((base|sentence_transformer)\.)?(models|modules)\.(\w+\.)?(?P<kind>\w+)"
)
_OURS = (  # options of loading that change no vector
    ("add_pooling_layer", False),
    ("output_hidden_states", True),
)


class Described(NamedTuple):
    """How a saved model turns token states into a vector."""

    pooling: str
    head: Sequence[nn.Module]
    max_length: int | None
    prompts: Mapping[str, str] = {}  # texts before a text, by name
    default_prompt: str | None = None  # of texts that are neither queries nor documents, by name

    @property
    def normalizes(self) -> bool:
        """Whether the model's vectors have length one."""
        return bool(self.head) and isinstance(self.head[-1], Normalize)

    @property
    def modules(self) -> list[tuple[str, str]]:
        """The folder and the class of each of its modules in sentence-transformers."""
        modules = [("", "Transformer")]
        if weights := _token_module(POOLINGS[self.pooling]):
            modules.append((f"1_{weights}", weights))
        modules.append((f"{len(modules)}_Pooling", "Pooling"))
        for number, part in enumerate(self.head, start=2):
            modules.append((f"{number}_{type(part).__name__}", type(part).__name__))
        return modules


def read_modules(path: str, needed: bool = True) -> Described | None:
    """Read the pooling, head and length that a folder or hub id states; None if it states nothing.

    Raises:
        BadInput: a file is damaged, missing or not supported by this version; or the hub cannot be
            reached and the answer is `needed` (otherwise it is None, with a warning).
    """
    try:
        ours = (read(path, "config.json") or {}).get("sentence_embedding")
        if ours is not None:
            return _read_ours(path, ours)
        modules = read(path, "modules.json", list)
        return None if modules is None else _read_sentence_transformers(path, modules)
    except Unreachable as error:
        if needed:
            raise
        logger.warning("%s; using the backbone's maximum length", error)
        return None


def _read_ours(path: str, ours: Any) -> Described:
    where = "sentence_embedding"
    version = _entry(path, where, ours, "format", int)
    if version != FORMAT:
        raise BadInput(newer_format(f"'{path}': {where} in config.json", version, FORMAT))
    pooling = _entry(path, where, ours, "pooling", str)
    count = _entry(path, where, ours, "head", int | None) or 0
    length = _entry(path, where, ours, "max_length", int | None)
    if pooling not in POOLINGS:
        raise _unsupported(path, f"pooling '{pooling}'")
    if "flow" in ours:
        raise _unsupported(path, "a flow, which an earlier version saved,")
    head: list[nn.Module] = [_read_dense(path, f"{i}_Dense") for i in range(2, 2 + count)]
    if "normalize" in ours and _entry(path, where, ours, "normalize", bool):
        head.append(Normalize())
    _loading_settings(path)
    described = Described(pooling, head, length)
    _check_modules(path, described)
    return _with_prompts(path, described)


def _check_modules(path: str, described: Described) -> None:
    """Refuse a folder whose modules another program changed, with our entry copied as it was."""
    try:
        modules = read(path, "modules.json", list) or []
        classes, files = _classes(path, modules), []
        for module, part in zip(modules, classes, strict=True):
            if part == "Pooling":
                files.append(read(path, f"{module.get('path')}/config.json"))
    except Unreachable:
        return
    pooling = POOLINGS[described.pooling]
    same = all(file is None or _module_of(file) == pooling.module for file in files)
    if modules and (classes != [name for _, name in described.modules] or not same):
        raise BadInput(
            f"'{path}': modules.json and 'sentence_embedding' in config.json describe different "
            "models; remove that key if modules.json is right"
        )


def _read_sentence_transformers(path: str, modules: list[dict]) -> Described:
    if not modules:
        raise _unsupported(path, "a model without a pooling module")
    classes = _classes(path, modules)
    if classes[0] != "Transformer":
        raise _unsupported(path, f"a first module of type {modules[0]['type']}")
    if inner := _entry(path, "modules.json", modules[0], "path", str):
        raise _unsupported(path, f"a Transformer in '{inner}'")
    pooling, head = None, list[nn.Module]()
    for module, name in zip(modules[1:], classes[1:], strict=True):
        if name == "Normalize" and module is modules[-1]:
            head.append(Normalize())
        elif name == "Pooling":
            folder = _entry(path, "modules.json", module, "path", str)
            pooling = _pooling_name(path, read(path, str(PurePosixPath(folder, "config.json"))))
        elif name == "Dense":
            head.append(_read_dense(path, _entry(path, "modules.json", module, "path", str)))
        else:
            raise _unsupported(path, f"module type {module['type']}")
    if pooling is None:
        raise _unsupported(path, "a model without a pooling module")
    length = _entry(path, _LOADING, _loading_settings(path), "max_seq_length", int | None)
    return _with_prompts(path, Described(pooling, head, length))


def _loading_settings(path: str) -> dict[str, Any]:
    """Read how sentence-transformers loads the backbone.

    BadInput for an option that would change its vectors.
    """
    settings = {"max_seq_length": None} | (read(path, _LOADING) or {})
    if settings.get("do_lower_case"):
        raise _unsupported(path, "lower-casing of texts (do_lower_case)")
    for name in ("query_length", "document_length", "query_expansion"):
        if settings.get(name) is not None:
            raise _unsupported(path, f"{name} {settings[name]} in {_LOADING}")
    for name, options in settings.items():
        if not name.endswith(("_args", "_kwargs")) or not options:
            continue
        if not isinstance(options, dict) or any(item not in _OURS for item in options.items()):
            raise _unsupported(
                path, f"{name} {str(options)[:80]} in {_LOADING}, not in the model's config.json,"
            )
    return settings


def _classes(path: str, modules: list) -> list[str]:
    """The classes of the modules; BadInput for one of another package."""
    classes = []
    for module in modules:
        name = _entry(path, "modules.json", module, "type", str)
        match = _TYPE.fullmatch(name)
        if match is None:
            raise _unsupported(path, f"module type {name}")
        classes.append(match["kind"])
    return classes


def _with_prompts(path: str, described: Described) -> Described:
    """Read the prompts of a folder by name, and the name of the default one.

    Raises:
        BadInput: shortened vectors, or another similarity than the cosine.
    """
    settings = {"prompts": None, "default_prompt_name": None} | (read(path, _SETTINGS) or {})
    if (width := settings.get("truncate_dim")) is not None:
        raise _unsupported(path, f"truncate_dim {width} in {_SETTINGS}")
    similarity = settings.get("similarity_fn_name")
    if similarity not in (None, "cosine") and not (similarity == "dot" and described.normalizes):
        raise BadInput(
            f"'{path}': its similarity is '{similarity}' ({_SETTINGS}), but this project compares "
            "by the cosine; remove similarity_fn_name there to do so with this model"
        )
    prompts = _entry(path, _SETTINGS, settings, "prompts", dict | None) or {}
    texts = {name: _entry(path, _SETTINGS, prompts, name, str | None) or "" for name in prompts}
    default = _entry(path, _SETTINGS, settings, "default_prompt_name", str | None)
    return described._replace(prompts=texts, default_prompt=default)


def _pooling_name(path: str, settings: dict | None) -> str:
    named = _module_of(settings)
    if (settings or {}).get("include_prompt") is False:
        raise _unsupported(path, "a pooling without the prompt's tokens (include_prompt false)")
    for name, pooling in POOLINGS.items():
        if pooling.module == named and not (pooling.keeps_head or _token_module(pooling)):
            return name
    raise _unsupported(path, f"pooling '{named}'")


def _unsupported(path: str, what: str) -> BadInput:
    return BadInput(f"'{path}': {what} is not supported, and ignoring it would change the vectors")


def _module_of(settings: dict | None) -> str:
    """The pooling of sentence-transformers that the configuration of its module names."""
    settings = settings or {}
    old = {
        "pooling_mode_cls_token": "cls",
        "pooling_mode_mean_tokens": "mean",
        "pooling_mode_lasttoken": "lasttoken",
    }
    return settings.get("pooling_mode") or "+".join(
        old.get(key, key)
        for key, value in settings.items()
        if key.startswith("pooling_mode_") and value
    )


def _read_dense(path: str, name: str) -> Dense:
    file = f"{name}/config.json"
    settings = read(path, file)
    vector = "sentence_embedding"
    usual = {"use_residual": False, "module_input_name": vector, "module_output_name": vector}
    for key, value in usual.items():
        if (found := (settings or {}).get(key)) not in (None, value):
            raise _unsupported(path, f"{key} {found} in {file}")
    sizes = [_entry(path, file, settings, key, int) for key in ("in_features", "out_features")]
    bias = _entry(path, file, settings, "bias", bool)
    activation = _entry(path, file, settings, "activation_function", str).rsplit(".", 1)[-1]
    if activation not in ACTIVATIONS:
        raise _unsupported(path, f"activation '{activation}' in {file}")
    weights = fetch(path, f"{name}/model.safetensors") or fetch(path, f"{name}/pytorch_model.bin")
    tensors = read_tensors(weights) if weights else {}
    tensors = {key.removeprefix("linear."): value for key, value in tensors.items()}
    try:
        with torch.device("meta"):  # nothing is allocated for sizes that are not the file's
            linear = nn.Linear(sizes[0], sizes[1], bias)
        linear.load_state_dict(tensors, assign=True)
    except (RuntimeError, OverflowError, TypeError) as error:
        raise BadInput(
            f"'{path}': {name} does not match its config.json: {brief(error)}"
        ) from error
    return Dense(linear.float(), activation)  # it may be stored in half precision


def _entry(path: str, where: str, mapping: Any, name: str, expected: type | UnionType) -> Any:
    """Return `mapping[name]`; BadInput if it is missing, of another type, or a negative number."""
    missing = not isinstance(mapping, dict) or name not in mapping
    value = None if missing else mapping[name]
    negative = isinstance(value, int) and value < 0
    other = not isinstance(value, expected) or (isinstance(value, bool) and expected is not bool)
    if missing or negative or other:
        raise BadInput(f"'{path}': {where} has no valid '{name}'; copy the whole folder again")
    return value


def _token_module(pooling: Pooling) -> str | None:
    """The module that weights tokens or layers before sentence-transformers' pooling, if any."""
    return "WeightedLayerPooling" if pooling.layers else "WordWeights" if pooling.at_mask else None


def write_modules(folder: Path, described: Described, backbone: PreTrainedModel, tokenizer) -> None:
    """Write sentence-transformers' files beside a saved backbone and tokenizer.

    They load the backbone without a pooler, which would be random. With a module between backbone
    and pooling, the pooling's folder has another name: servers that look for the usual one do not
    support that module.
    """
    pooling, config = POOLINGS[described.pooling], backbone.config
    modules = []
    for number, (path, name) in enumerate(described.modules):
        modules.append({"idx": number, "name": str(number), "path": path, "type": _TYPES + name})
        if name == "WeightedLayerPooling":
            _write_layer_weights(folder / path, pooling, config)
        elif name == "WordWeights":
            _write_word_weights(folder / path, tokenizer)
        elif name == "Pooling":
            settings = _pooling_settings(pooling.module, config.hidden_size)
            write_json(folder / path / "config.json", settings)
    for number, layer in enumerate(described.head, start=2):
        if isinstance(layer, Dense):
            _write_dense(folder / f"{number}_Dense", layer)
    write_json(folder / "modules.json", modules)
    loading: dict[str, Any] = {"max_seq_length": described.max_length, "do_lower_case": False}
    if options := without_pooler(type(backbone)):
        loading["model_args"] = options
    if pooling.layers:
        loading["config_args"] = {"output_hidden_states": True}
    write_json(folder / _LOADING, loading)
    settings = {
        "model_type": "SentenceTransformer",
        "prompts": dict(described.prompts),
        "default_prompt_name": described.default_prompt,
        "similarity_fn_name": "cosine",
    }
    write_json(folder / _SETTINGS, settings)


def _pooling_settings(mode: str, width: int) -> dict[str, Any]:
    return {
        "word_embedding_dimension": width,  # only the old name: both together cause a warning
        "pooling_mode": mode,
        "pooling_mode_cls_token": mode == "cls",
        "pooling_mode_mean_tokens": mode == "mean",
        "pooling_mode_max_tokens": False,
        "pooling_mode_mean_sqrt_len_tokens": False,
        **({"pooling_mode_lasttoken": True} if mode == "lasttoken" else {}),
        "include_prompt": True,  # last: older vLLM takes the first true key as the pooling
    }


def _write_word_weights(folder: Path, tokenizer: Any) -> None:
    """Give every token but the mask the weight 0."""
    words = {number: word for word, number in tokenizer.get_vocab().items()}
    vocabulary = [words.get(number, "") for number in range(max(words) + 1)]  # it may have gaps
    weights = {
        "vocab": vocabulary,
        "word_weights": {tokenizer.mask_token: 1.0},
        "unknown_word_weight": 0.0,
    }
    write_json(folder / "config.json", weights)


def _write_layer_weights(folder: Path, pooling: Pooling, config: Any) -> None:
    """Give every hidden state but those of `pooling.layers` the weight 0."""
    weights = torch.zeros(config.num_hidden_layers + 1)
    for layer in pooling.layers:
        weights[layer] += 1
    first, count = int(weights.nonzero()[0]), config.num_hidden_layers
    sizes = {
        "word_embedding_dimension": config.hidden_size,
        "layer_start": first,
        "num_hidden_layers": count,
    }
    write_json(folder / "config.json", sizes)
    save_file({"layer_weights": weights[first:].clone()}, folder / "model.safetensors")


def _write_dense(folder: Path, layer: Dense) -> None:
    linear, home = layer[0], "linear" if layer.activation == "Identity" else "activation"
    settings = {
        "in_features": linear.in_features,
        "out_features": linear.out_features,
        "bias": linear.bias is not None,
        "activation_function": f"torch.nn.modules.{home}.{layer.activation}",
    }
    write_json(folder / "config.json", settings)
    tensors = {f"linear.{name}": p.detach().contiguous() for name, p in linear.named_parameters()}
    save_file(tensors, folder / "model.safetensors")
