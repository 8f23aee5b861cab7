"""The saved description of pooling and head: ours in config.json, and sentence-transformers'
modules.

Reading: a folder is untrusted input. Nothing outside it is read, and what would change a vector
silently is refused.

Writing: the pooling file is written in both schemas, since text-embeddings-inference needs the old
booleans and current sentence-transformers the new name; type strings are in the old form, which
every version imports.
"""

import logging
import re
from collections.abc import Callable, Mapping
from pathlib import Path, PurePosixPath
from types import UnionType
from typing import Any, NamedTuple

import torch
from safetensors.torch import save_file
from torch import Tensor, nn

from common.errors import BadInput, brief, newer_format
from common.files import read_json, write_json
from models.folder import Unreachable, fetch, unpickled
from models.heads import ACTIVATIONS, Dense, Normalize
from models.loading import check_finite, load_config, read_tensors
from models.pooling import POOLINGS, Pooling

logger = logging.getLogger(__name__)
FORMAT = 1
_TYPES = "sentence_transformers.models."
# `models.Pooling`, `models.Pooling.Pooling`, `sentence_transformer.modules.pooling.Pooling`, by
# version.
_TYPE = re.compile(
    r"sentence_transformers\.((base|sentence_transformer)\.)?(models|modules)\.(\w+\.)?(?P<kind>\w+)"
)
_SETTINGS = "config_sentence_transformers.json"
_LOADING = "sentence_bert_config.json"
_OURS = (
    ("add_pooling_layer", False),
    ("output_hidden_states", True),
)  # options of loading that change no vector


class Described(NamedTuple):
    """How a saved model turns token states into a vector."""

    pooling: str
    head: list[nn.Module]
    max_length: int | None
    prompts: Mapping[str, str] = {}  # texts before a text, by name
    default_prompt: str | None = (
        None  # the name of the one for texts that are neither queries nor documents
    )

    @property
    def normalizes(self) -> bool:
        """Whether the model's vectors have length one."""
        return _normalizes(self.head)


def _normalizes(head: list[nn.Module]) -> bool:
    return bool(head) and isinstance(head[-1], Normalize)


def read_modules(path: str, config=None, needed: bool = True) -> Described | None:
    """Read the pooling, head and length that a folder or hub id states; None if it states nothing.

    `config` is the model's configuration, if it has been loaded.

    Raises:
        BadInput: a file is damaged, missing or not supported by this version; or the hub cannot be
            reached and the answer is `needed` (otherwise it is None, with a warning).
    """
    try:
        return _read(path, config if config is not None else load_config(path))
    except Unreachable as error:
        if needed:
            raise
        logger.warning("%s; using the backbone's maximum length", error)
        return None


def _read(path: str, config) -> Described | None:
    ours = getattr(config, "sentence_embedding", None)
    if ours is not None:
        version = _entry(path, "sentence_embedding", ours, "format", int)
        if version != FORMAT:
            raise BadInput(
                newer_format(f"'{path}': sentence_embedding in config.json", version, FORMAT)
            )
        pooling, count, length = (
            _entry(path, "sentence_embedding", ours, name, expected)
            for name, expected in (
                ("pooling", str),
                ("head", int | None),
                ("max_length", int | None),
            )
        )
        head = [_read_dense(path, f"{i}_Dense") for i in range(2, 2 + (count or 0))]
        if "flow" in ours:
            raise _unsupported(path, "a flow, which an earlier version saved,")
        if "normalize" in ours and _entry(path, "sentence_embedding", ours, "normalize", bool):
            head.append(Normalize())
        _check_modules(path, pooling, count or 0, any(isinstance(part, Normalize) for part in head))
        _loading_settings(path)
        return Described(pooling, head, length, *_prompts(path, _normalizes(head)))
    modules = _read_json(path, "modules.json", list)
    return None if modules is None else _read_sentence_transformers(path, modules)


def _check_modules(path: str, pooling: str, dense: int, normalizes: bool) -> None:
    """Refuse a folder whose modules another program has changed: it copies our entry of config.json as it was."""
    try:
        modules = _read_json(path, "modules.json", list) or []
        classes = _classes(path, modules) if modules else []
        folders = [
            module.get("path")
            for module, part in zip(modules, classes, strict=True)
            if part == "Pooling"
        ]
        files = [_read_json(path, f"{folder}/config.json") for folder in folders]
    except Unreachable:
        return
    ours = POOLINGS.get(pooling)
    expected = [name for _, name in _layout(ours, dense, normalizes)] if ours else []
    same = all(file is None or _module_of(file) == (ours and ours.module) for file in files)
    if modules and (classes != expected or not same):
        raise BadInput(
            f"'{path}': modules.json and 'sentence_embedding' in config.json describe different "
            "models; remove that "
            "key if modules.json is right"
        )


def _layout(pooling: Pooling, dense: int, normalizes: bool) -> list[tuple[str, str]]:
    """The folder and the class of each module of a model whose head has `dense` layers."""
    weights = _token_module(pooling)
    before = (
        [(f"1_{weights}", weights), ("2_Pooling", "Pooling")]
        if weights
        else [("1_Pooling", "Pooling")]
    )
    behind = [(f"{i}_Dense", "Dense") for i in range(2, 2 + dense)]
    behind += [(f"{2 + dense}_Normalize", "Normalize")] if normalizes else []
    return [("", "Transformer"), *before, *behind]


def _read_sentence_transformers(path: str, modules: list[dict]) -> Described:
    if not modules:
        raise _unsupported(path, "a model without a pooling module")
    classes = _classes(path, modules)
    if classes[0] != "Transformer":
        raise _unsupported(path, f"a first module of type {modules[0]['type']}")
    if inner := _entry(path, "modules.json", modules[0], "path", str):
        raise _unsupported(path, f"a Transformer in '{inner}'")
    pooling, head = None, []
    for module, module_class in zip(modules[1:], classes[1:], strict=True):
        folder = (
            _entry(path, "modules.json", module, "path", str) if module_class != "Normalize" else ""
        )
        if module_class == "Pooling":
            pooling = _pooling_name(
                path, _read_json(path, str(PurePosixPath(folder, "config.json")))
            )
        elif module_class == "Dense":
            head.append(_read_dense(path, folder))
        elif module_class == "Normalize":
            head.append(Normalize())
        else:
            raise _unsupported(path, f"module type {module['type']}")
    if pooling is None:
        raise _unsupported(path, "a model without a pooling module")
    length = _entry(path, _LOADING, _loading_settings(path), "max_seq_length", int | None)
    return Described(pooling, head, length, *_prompts(path, _normalizes(head)))


def _loading_settings(path: str) -> dict[str, Any]:
    """Read how sentence-transformers loads the backbone; BadInput for an option that would change its vectors."""
    settings = {"max_seq_length": None} | (_read_json(path, _LOADING) or {})
    if settings.get("do_lower_case"):
        raise _unsupported(path, "lower-casing of texts (do_lower_case)")
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
    types = [_entry(path, "modules.json", module, "type", str) for module in modules]
    matches = [_TYPE.fullmatch(name) for name in types]
    if foreign := [name for name, match in zip(types, matches, strict=True) if match is None]:
        raise _unsupported(path, f"module type {foreign[0]}")
    return [match["kind"] for match in matches]


def _prompts(path: str, normalizes: bool) -> tuple[dict[str, str], str | None]:
    """Read the prompts of a folder by name, and the name of the default one.

    Raises:
        BadInput: shortened vectors, or another similarity than the cosine.
    """
    settings = {"prompts": None, "default_prompt_name": None} | (_read_json(path, _SETTINGS) or {})
    if (width := settings.get("truncate_dim")) is not None:
        raise _unsupported(path, f"truncate_dim {width} in {_SETTINGS}")
    similarity = settings.get("similarity_fn_name")
    if similarity not in (None, "cosine") and not (similarity == "dot" and normalizes):
        raise BadInput(
            f"'{path}': its similarity is '{similarity}' ({_SETTINGS}), but this project compares "
            "by the cosine; remove similarity_fn_name there to do so with this model"
        )
    prompts = _entry(path, _SETTINGS, settings, "prompts", dict | None) or {}
    texts = {name: _entry(path, _SETTINGS, prompts, name, str | None) or "" for name in prompts}
    return texts, _entry(path, _SETTINGS, settings, "default_prompt_name", str | None)


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
    settings = _read_json(path, file)
    types = {"in_features": int, "out_features": int, "bias": bool, "activation_function": str}
    *sizes, bias, activation = (
        _entry(path, file, settings, key, expected) for key, expected in types.items()
    )
    activation = activation.rsplit(".", 1)[-1]
    if activation not in ACTIVATIONS:
        raise _unsupported(path, f"activation '{activation}' in {file}")
    tensors = {}
    if weights := fetch(path, f"{name}/model.safetensors"):
        tensors = read_tensors(weights)
    elif weights := fetch(path, f"{name}/pytorch_model.bin"):
        tensors = unpickled(weights)
        check_finite(weights, tensors)
    tensors = {key.removeprefix("linear."): value for key, value in tensors.items()}
    linear = _filled(path, name, lambda: nn.Linear(*sizes, bias=bias), tensors)
    return Dense(linear, activation)


def _filled(
    path: str, part: str, make: Callable[[], nn.Module], tensors: dict[str, Tensor]
) -> nn.Module:
    """Fill a module with exactly the tensors of a file."""
    try:
        with torch.device("meta"):
            module = make()
        module.load_state_dict(tensors, assign=True)
    except (KeyError, RuntimeError, TypeError, OverflowError) as error:
        raise BadInput(
            f"'{path}': {part} does not match its config.json: {brief(error)}"
        ) from error
    return module.float()  # a head may be stored in half precision


def _entry(path: str, where: str, mapping: Any, name: str, expected: type | UnionType) -> Any:
    """Return `mapping[name]`; BadInput if it is missing, of another type, or a negative number."""
    missing = not isinstance(mapping, dict) or name not in mapping
    value = None if missing else mapping[name]
    negative = isinstance(value, int) and value < 0
    if (
        missing
        or negative
        or not isinstance(value, expected)
        or (isinstance(value, bool) and expected is not bool)
    ):
        raise BadInput(f"'{path}': {where} has no valid '{name}'; copy the whole folder again")
    return value


def _read_json(path: str, name: str, expected: type = dict) -> Any:
    """Read a JSON file, an object or another type; None if the file does not exist."""
    file = fetch(path, name)
    return file and read_json(
        file, "a description of the model", "copy the whole folder again", expected
    )


def write_head(folder: str | Path, dense: list[Dense]) -> None:
    """Write the weights of a kept head: `2_Dense` and so on."""
    for i, layer in enumerate(dense, start=2):
        _write_dense(Path(folder) / f"{i}_Dense", layer)


def write_modules(
    folder: str | Path,
    pooling: Pooling,
    dense: int,
    max_length: int,
    config: Any,
    options: Mapping[str, bool],
    tokenizer: Any,
    normalizes: bool = False,
) -> None:
    """Write modules.json and the files it names, except the head, which has `dense` layers.

    `options` load the backbone without a pooler, which sentence-transformers would initialise at
    random. `config` is the backbone's. With a module between backbone and pooling, the pooling's
    folder has another name: servers that look for the usual one do not support that module.
    `normalizes` adds a final Normalize module.
    """
    root, layout = Path(folder), _layout(pooling, dense, normalizes)
    folders = {name: root / path for path, name in layout}
    if pooling.layers:
        _write_layer_weights(folders["WeightedLayerPooling"], pooling, config)
    elif pooling.at_mask:
        _write_word_weights(folders["WordWeights"], tokenizer)
    write_json(
        root / "modules.json",
        [
            {"idx": i, "name": str(i), "path": path, "type": _TYPES + name}
            for i, (path, name) in enumerate(layout)
        ],
    )
    settings = {"max_seq_length": max_length, "do_lower_case": False} | (
        {"model_args": options} if options else {}
    )
    settings |= {"config_args": {"output_hidden_states": True}} if pooling.layers else {}
    write_json(root / _LOADING, settings)
    write_json(
        folders["Pooling"] / "config.json", _pooling_settings(pooling.module, config.hidden_size)
    )


def write_settings(
    folder: str | Path, prompts: Mapping[str, str], default_prompt: str | None
) -> None:
    """Write the prompts and the similarity of a model."""
    settings = {
        "prompts": dict(prompts),
        "default_prompt_name": default_prompt,
        "similarity_fn_name": "cosine",
    }
    write_json(Path(folder) / _SETTINGS, {"model_type": "SentenceTransformer", **settings})


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


def _token_module(pooling: Pooling) -> str | None:
    """The module of sentence-transformers that weights tokens or layers before the pooling, if one is needed."""
    return "WeightedLayerPooling" if pooling.layers else "WordWeights" if pooling.at_mask else None


def _write_word_weights(folder: Path, tokenizer: Any) -> None:
    """Give every token but the mask the weight 0."""
    words = {number: word for word, number in tokenizer.get_vocab().items()}
    vocabulary = [
        words.get(number, "") for number in range(max(words) + 1)
    ]  # a vocabulary may have gaps
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
    write_json(
        folder / "config.json",
        {
            "in_features": linear.in_features,
            "out_features": linear.out_features,
            "bias": linear.bias is not None,
            "activation_function": f"torch.nn.modules.{home}.{layer.activation}",
        },
    )
    tensors = {
        f"linear.{name}": value.detach().contiguous() for name, value in linear.named_parameters()
    }
    save_file(tensors, folder / "model.safetensors")
