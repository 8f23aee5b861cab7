"""The saved description of pooling and head: ours in config.json, and sentence-transformers' modules.

Reading: a folder is untrusted input. Every value is checked, nothing outside the folder is read, and claimed sizes
allocate no memory.

Writing: the pooling file is written in both schemas, since text-embeddings-inference needs the old booleans and current
sentence-transformers the new name; type strings are in the old form, which every version imports.
"""

import logging
import re
from collections.abc import Callable, Mapping
from pathlib import Path, PurePosixPath
from types import UnionType
from typing import Any, NamedTuple

import torch
from huggingface_hub import _CACHED_NO_EXIST, hf_hub_download, try_to_load_from_cache
from huggingface_hub.errors import EntryNotFoundError, LocalEntryNotFoundError
from safetensors.torch import save_file
from torch import Tensor, nn

from common.errors import BadInput, newer_format
from common.files import read_json, write_json
from models.flow import Flow
from models.heads import Dense, Normalize
from models.loading import load_config, read_tensors
from models.pooling import POOLINGS, Pooling

logger = logging.getLogger(__name__)
FORMAT = 1
FLOW = "flow.safetensors"
_TYPES = "sentence_transformers.models."
# `models.Pooling`, `models.Pooling.Pooling`, `sentence_transformer.modules.pooling.Pooling`, by version.
_TYPE = re.compile(r"sentence_transformers\.((base|sentence_transformer)\.)?(models|modules)\.(\w+\.)?(?P<kind>\w+)")
_SETTINGS = "config_sentence_transformers.json"
_LOADING = "sentence_bert_config.json"
_OURS = ("add_pooling_layer", False), ("output_hidden_states", True)  # options of loading that change no vector


class _Unreachable(BadInput):
    """A file that may be on the hub, which cannot be reached."""


class Described(NamedTuple):
    """How a saved model turns token states into a vector."""

    pooling: str
    head: list[nn.Module]
    max_length: int | None
    prompts: Mapping[str, str] = {}  # texts before a text, by name
    default_prompt: str | None = None  # the name of the one for texts that are neither queries nor documents

    @property
    def normalizes(self) -> bool:
        """Whether the model's vectors have length one."""
        return bool(self.head) and isinstance(self.head[-1], Normalize)


def read_modules(path: str, config=None, needed: bool = True) -> Described | None:
    """Read the pooling, head and length that a folder or hub id states; None if it states nothing.

    `config` is the model's configuration, if it has been loaded.

    Raises:
        BadInput: a file is damaged, missing or not supported by this version; or the hub cannot be reached and the
            answer is `needed` (otherwise it is None, with a warning).
    """
    try:
        return _read(path, config if config is not None else load_config(path))
    except _Unreachable as error:
        if needed:
            raise
        logger.warning("%s; using the backbone's maximum length", error)
        return None


def _read(path: str, config) -> Described | None:
    ours = getattr(config, "sentence_embedding", None)
    if ours is not None:
        version = _entry(path, "sentence_embedding", ours, "format", int)
        if version != FORMAT:
            raise BadInput(newer_format(f"'{path}': sentence_embedding in config.json", version, FORMAT))
        pooling, count, length = (
            _entry(path, "sentence_embedding", ours, name, kind)
            for name, kind in (("pooling", str), ("head", int | None), ("max_length", int | None))
        )
        head = [_read_dense(path, f"{i}_Dense") for i in range(2, 2 + (count or 0))]
        if "flow" in ours:
            head.append(_read_flow(path, _entry(path, "sentence_embedding", ours, "flow", dict)))
        if "normalize" in ours and _entry(path, "sentence_embedding", ours, "normalize", bool):
            head.append(Normalize())
        _check_modules(path, pooling, count or 0, any(isinstance(part, Normalize) for part in head))
        _loading_settings(path)
        return Described(pooling, head, length, *_prompts(path))
    modules = _read_json(path, "modules.json", list)
    return None if modules is None else _read_sentence_transformers(path, modules)


def _check_modules(path: str, pooling: str, dense: int, normalizes: bool) -> None:
    """Refuse a folder whose modules another program has changed: it copies our entry of config.json as it was."""
    try:
        modules = _read_json(path, "modules.json", list) or []
        kinds = _kinds(path, modules) if modules else []
        places = [module.get("path") for module, kind in zip(modules, kinds, strict=True) if kind == "Pooling"]
        files = [_read_json(path, f"{place}/config.json") for place in places]
    except _Unreachable:
        return
    ours = POOLINGS.get(pooling)
    before = ["Transformer", *([kind] if ours and (kind := _token_module(ours)) else []), "Pooling"]
    expected = [*before, *["Dense"] * dense, *["Normalize"] * normalizes]
    same = all(file is None or _module_of(file) == (ours and ours.module) for file in files)
    if modules and (kinds != expected or not same):
        raise BadInput(f"'{path}': modules.json and 'sentence_embedding' in config.json describe different models; "
                       "remove that key if modules.json is right")  # fmt: skip


def _read_sentence_transformers(path: str, modules: list[dict]) -> Described:
    pooling, head = None, []
    for module, kind in zip(modules[1:], _kinds(path, modules)[1:], strict=True):
        place = _entry(path, "modules.json", module, "path", str) if kind != "Normalize" else ""
        if kind == "Pooling":
            pooling = _pooling_name(path, _read_json(path, str(PurePosixPath(place, "config.json"))))
        elif kind == "Dense":
            head.append(_read_dense(path, place))
        elif kind == "Normalize":
            head.append(Normalize())
        else:
            raise BadInput(f"'{path}': module type {module['type']} is not supported here")
    if pooling is None:
        raise BadInput(f"'{path}': modules.json names no pooling module")
    length = _entry(path, _LOADING, _loading_settings(path), "max_seq_length", int | None)
    return Described(pooling, head, length, *_prompts(path))


def _loading_settings(path: str) -> dict[str, Any]:
    """Read how sentence-transformers loads the backbone; BadInput for an option that would change its vectors."""
    settings = {"max_seq_length": None} | (_read_json(path, _LOADING) or {})
    if settings.get("do_lower_case"):
        raise BadInput(f"'{path}': lower-casing of texts (do_lower_case) is not supported here")
    for name, options in settings.items():
        if name.endswith(("_args", "_kwargs")) and any(item not in _OURS for item in dict(options or {}).items()):
            raise BadInput(f"'{path}': {name} {str(options)[:80]} in {_LOADING} is not supported here; write the "
                           "setting into config.json or tokenizer_config.json and remove it")  # fmt: skip
    return settings


def _kinds(path: str, modules: list) -> list[str]:
    """The classes of the modules; BadInput for one of another package, or without a transformer in front."""
    types = [_entry(path, "modules.json", module, "type", str) for module in modules]
    matches = [_TYPE.fullmatch(name) for name in types]
    if foreign := [name for name, match in zip(types, matches, strict=True) if match is None]:
        raise BadInput(f"'{path}': module type {foreign[0]} is not supported here")
    kinds = [match["kind"] for match in matches]
    if kinds[:1] != ["Transformer"]:
        raise BadInput(
            f"'{path}': modules.json begins with {', '.join(types[:1]) or 'nothing'}, not with a Transformer"
        )
    return kinds


def _prompts(path: str) -> tuple[dict[str, str], str | None]:
    """Read the prompts of a folder by name, and the name of the default one; BadInput for shortened vectors."""
    settings = {"prompts": {}, "default_prompt_name": None} | (_read_json(path, _SETTINGS) or {})
    if (width := settings.get("truncate_dim")) is not None:
        raise BadInput(f"'{path}': truncate_dim {width} in {_SETTINGS} is not supported here; remove it to use all "
                       "dimensions")  # fmt: skip
    prompts = _entry(path, _SETTINGS, settings, "prompts", dict | None) or {}
    prompts = {name: text or "" for name, text in prompts.items()}
    default = _entry(path, _SETTINGS, settings, "default_prompt_name", str | None)
    if not all(isinstance(text, str) for text in prompts.values()):
        raise BadInput(f"'{path}': a prompt in {_SETTINGS} is not text; copy the whole folder again")
    if default is not None and default not in {"query", "document", *prompts}:
        raise BadInput(f"'{path}': default_prompt_name '{default}' in {_SETTINGS} names none of its prompts")
    if (unused := prompts.get("passage")) and not prompts.get("document"):
        logger.warning("'%s': no text gets its prompt 'passage', as in sentence-transformers; for documents give "
                       "--document_prompt '%s'", path, unused)  # fmt: skip
    return prompts, default


def _pooling_name(path: str, settings: dict | None) -> str:
    named = _module_of(settings)
    if (settings or {}).get("include_prompt") is False:
        raise BadInput(f"'{path}': a pooling without the prompt's tokens (include_prompt false) is not supported here")
    for name, pooling in POOLINGS.items():
        if pooling.module == named and not (pooling.keeps_head or _token_module(pooling)):
            return name
    raise BadInput(f"'{path}': pooling '{named}' is not supported here")


def _module_of(settings: dict | None) -> str:
    """The pooling of sentence-transformers that the configuration of its module names."""
    settings = settings or {}
    old = {"pooling_mode_cls_token": "cls", "pooling_mode_mean_tokens": "mean", "pooling_mode_lasttoken": "lasttoken"}
    return settings.get("pooling_mode") or "+".join(
        old.get(key, key) for key, value in settings.items() if key.startswith("pooling_mode_") and value
    )


def _read_dense(path: str, name: str) -> Dense:
    place = f"{name}/config.json"
    settings, weights = _read_json(path, place), _fetch(path, f"{name}/model.safetensors")
    if settings is None or weights is None:
        raise BadInput(f"'{path}' lacks {place} or {name}/model.safetensors of its head; copy the whole folder")
    kinds = {"in_features": int, "out_features": int, "bias": bool, "activation_function": str}
    *sizes, bias, activation = (_entry(path, place, settings, key, kind) for key, kind in kinds.items())
    tensors = {key.removeprefix("linear."): value for key, value in read_tensors(weights).items()}
    linear = _filled(path, name, lambda: nn.Linear(*sizes, bias=bias), tensors)
    return Dense(linear, activation.rsplit(".", 1)[-1])


def _read_flow(path: str, sizes: dict) -> Flow:
    weights = _fetch(path, FLOW)
    if weights is None:
        raise BadInput(f"'{path}' lacks {FLOW}, the flow that its config.json describes; copy the whole folder")
    tensors = read_tensors(weights)
    if _entry(path, "flow", sizes, "steps", int) > len(tensors):
        raise BadInput(f"'{path}': {FLOW} does not match its config.json: it has fewer steps")
    return _filled(path, FLOW, lambda: Flow(**sizes), tensors)


def _filled(path: str, part: str, make: Callable[[], nn.Module], tensors: dict[str, Tensor]) -> nn.Module:
    """Fill a module with exactly the tensors of a file; sizes from config.json alone allocate nothing."""
    try:
        with torch.device("meta"):
            module = make()
    except (RuntimeError, TypeError, OverflowError) as error:
        raise BadInput(f"'{path}': {part} does not match its config.json: {error}") from error
    expected, found = ({n: value.shape for n, value in state.items()} for state in (module.state_dict(), tensors))
    wrong = sorted(name for name in expected.keys() | found.keys() if expected.get(name) != found.get(name))
    if wrong:
        reason = f"{wrong[0]} is missing, unexpected or of the wrong shape ({len(wrong)} tensors in all)"
        raise BadInput(f"'{path}': {part} does not match its config.json: {reason}")
    module.to_empty(device="cpu").load_state_dict(tensors)
    return module


def _entry(path: str, where: str, mapping: Any, name: str, kind: type | UnionType) -> Any:
    """Return `mapping[name]`; BadInput if it is missing, of another type, or a negative number."""
    if not isinstance(mapping, dict) or name not in mapping:
        raise BadInput(f"'{path}': {where} has no '{name}'; copy the whole folder again")
    value = mapping[name]
    negative = isinstance(value, int) and value < 0
    if not isinstance(value, kind) or negative or (isinstance(value, bool) and kind is not bool):
        raise BadInput(f"'{path}': {where}: invalid '{name}' {str(value)[:40]}; copy the whole folder again")
    return value


def _read_json(path: str, name: str, kind: type = dict) -> Any:
    """Read a JSON file, an object or another `kind`; None if the file does not exist."""
    file = _fetch(path, name)
    return None if file is None else read_json(file, "a description of the model", "copy the whole folder again", kind)


def _fetch(path: str, name: str) -> Path | None:
    """Return a file of a local folder or hub repository; None if it does not exist."""
    if PurePosixPath(name).is_absolute() or ".." in PurePosixPath(name).parts:
        raise BadInput(f"'{path}': '{name}' is outside the model's folder; refused")
    if Path(path).is_dir():
        file = Path(path) / name
        return file if file.is_file() else None
    try:
        return Path(hf_hub_download(path, name))
    except LocalEntryNotFoundError as error:  # a subclass of EntryNotFoundError, but the hub was not reached
        if try_to_load_from_cache(path, name) is _CACHED_NO_EXIST:
            return None
        raise _Unreachable(f"'{path}': cannot check for {name} without the hub; go online once") from error
    except EntryNotFoundError:
        return None


def write_head(folder: str | Path, dense: list[Dense], flow: Flow | None) -> None:
    """Write the weights of a kept head: `2_Dense` and so on, and `flow.safetensors`."""
    for i, layer in enumerate(dense, start=2):
        _write_dense(Path(folder) / f"{i}_Dense", layer)
    if flow is not None:
        save_file({name: value.contiguous() for name, value in flow.state_dict().items()}, Path(folder) / FLOW)


def write_modules(
    folder: str | Path, pooling: Pooling, dense: int, max_length: int, config: Any, options: Mapping[str, bool],
    tokenizer: Any, normalizes: bool = False,
) -> None:  # fmt: skip
    """Write modules.json and the files it names, except the head, which has `dense` layers.

    `options` load the backbone without a pooler, which sentence-transformers would initialise at random. `config` is
    the backbone's. With a module between backbone and pooling, the pooling's folder has another name: servers that look
    for the usual one do not support that module. `normalizes` adds a final Normalize module.
    """
    root = Path(folder)
    names = [("", "Transformer"), ("1_Pooling", "Pooling")]
    if kind := _token_module(pooling):
        names[1:] = [(f"1_{kind}", kind), ("2_Pooling", "Pooling")]
        if pooling.layers:
            _write_layer_weights(root / names[1][0], pooling, config)
        else:
            _write_word_weights(root / names[1][0], tokenizer)
    place = names[-1][0]
    names += [(f"{i}_Dense", "Dense") for i in range(2, 2 + dense)]
    names += [(f"{2 + dense}_Normalize", "Normalize")] if normalizes else []
    write_json(
        root / "modules.json",
        [{"idx": i, "name": str(i), "path": path, "type": _TYPES + kind} for i, (path, kind) in enumerate(names)],
    )
    settings = {"max_seq_length": max_length, "do_lower_case": False} | ({"model_args": options} if options else {})
    settings |= {"config_args": {"output_hidden_states": True}} if pooling.layers else {}
    write_json(root / _LOADING, settings)
    write_json(root / place / "config.json", _pooling_settings(pooling.module, config.hidden_size))


def write_settings(folder: str | Path, prompts: Mapping[str, str], default_prompt: str | None) -> None:
    """Write the prompts and the similarity of a model."""
    settings = {"prompts": dict(prompts), "default_prompt_name": default_prompt, "similarity_fn_name": "cosine"}
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
    vocabulary = [words.get(number, "") for number in range(max(words) + 1)]  # a vocabulary may have gaps
    weights = {"vocab": vocabulary, "word_weights": {tokenizer.mask_token: 1.0}, "unknown_word_weight": 0.0}
    write_json(folder / "config.json", weights)


def _write_layer_weights(folder: Path, pooling: Pooling, config: Any) -> None:
    """Give every hidden state but those of `pooling.layers` the weight 0."""
    weights = torch.zeros(config.num_hidden_layers + 1)
    for layer in pooling.layers:
        weights[layer] += 1
    first, count = int(weights.nonzero()[0]), config.num_hidden_layers
    sizes = {"word_embedding_dimension": config.hidden_size, "layer_start": first, "num_hidden_layers": count}
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
    tensors = {f"linear.{name}": value.detach().contiguous() for name, value in linear.named_parameters()}
    save_file(tensors, folder / "model.safetensors")
