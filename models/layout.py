"""The small files around a saved encoder: sentence-transformers' modules, written by hand and read back.

Written in both schemas of the pooling file, because text-embeddings-inference needs the old booleans and current
sentence-transformers the new name; type strings in the old form, which every version imports.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import NamedTuple

import torch
from huggingface_hub import hf_hub_download
from huggingface_hub.errors import EntryNotFoundError
from safetensors import SafetensorError
from safetensors.torch import load_file, save_file
from torch import Tensor, nn

from errors import BadInput
from models.flow import Flow
from models.heads import Dense
from models.pooling import POOLINGS

FORMAT = 1
FLOW = "flow.safetensors"
_TYPES = "sentence_transformers.models."


class Normalize(nn.Module):
    """Unit length, as sentence-transformers' module of that name."""

    def forward(self, vectors: Tensor) -> Tensor:
        return nn.functional.normalize(vectors, dim=-1)


class Described(NamedTuple):
    """How a saved model turns tokens into a vector."""

    pooling: str
    head: list[nn.Module]
    max_length: int | None


def write_head(folder: str, dense: list[Dense], flow: Flow | None) -> None:
    """Write the weights of a kept head: `2_Dense` and so on, and `flow.safetensors`."""
    for i, layer in enumerate(dense, start=2):
        _write_dense(Path(folder) / f"{i}_Dense", layer)
    if flow is not None:
        save_file({name: value.contiguous() for name, value in flow.state_dict().items()}, Path(folder) / FLOW)


def write_modules(folder: str, pooling: str, dense: int, max_length: int, width: int) -> None:
    """Write modules.json and what it names besides the head; `pooling` is sentence-transformers' name."""
    root = Path(folder)
    names = [("", "Transformer"), ("1_Pooling", "Pooling")]
    names += [(f"{i}_Dense", "Dense") for i in range(2, 2 + dense)]
    _write_json(
        root / "modules.json",
        [{"idx": i, "name": str(i), "path": path, "type": _TYPES + kind} for i, (path, kind) in enumerate(names)],
    )
    _write_json(root / "sentence_bert_config.json", {"max_seq_length": max_length, "do_lower_case": False})
    _write_json(
        root / "config_sentence_transformers.json",
        {"model_type": "SentenceTransformer", "prompts": {}, "similarity_fn_name": "cosine"},
    )
    _write_json(
        root / "1_Pooling" / "config.json",
        {
            "word_embedding_dimension": width,
            "embedding_dimension": width,
            "pooling_mode": pooling,
            "pooling_mode_cls_token": pooling == "cls",
            "pooling_mode_mean_tokens": pooling == "mean",
            "pooling_mode_max_tokens": False,
            "pooling_mode_mean_sqrt_len_tokens": False,
            "include_prompt": True,  # last: older vLLM takes the first key that is true for the pooling
        },
    )


def _write_dense(folder: Path, layer: Dense) -> None:
    linear = layer[0]
    _write_json(
        folder / "config.json",
        {
            "in_features": linear.in_features,
            "out_features": linear.out_features,
            "bias": linear.bias is not None,
            "activation_function": f"torch.nn.modules.{_home(layer)}.{layer.activation}",
        },
    )
    tensors = {f"linear.{name}": value.detach().contiguous() for name, value in linear.named_parameters()}
    save_file(tensors, folder / "model.safetensors")


def _home(layer: Dense) -> str:
    return "linear" if layer.activation == "Identity" else "activation"


def _write_json(path: Path, content) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(content, indent=2) + "\n", encoding="utf-8")


def read_modules(path: str, config) -> Described | None:
    """What a folder or hub id says of its pooling, head and length; None when it says nothing."""
    ours = getattr(config, "sentence_embedding", None)
    if ours is not None:
        if ours.get("format") != FORMAT:
            raise BadInput(f"'{path}' has saved format {ours.get('format')}; this version reads {FORMAT}")
        head = [_read_dense(path, f"{i}_Dense") for i in range(2, 2 + (ours["head"] or 0))]
        if "flow" in ours:
            head.append(_read_flow(path, ours["flow"]))
        return Described(ours["pooling"], head, ours["max_length"])
    modules = _read_json(path, "modules.json")
    if modules is None:
        return None
    return _read_sentence_transformers(path, modules)


def _read_sentence_transformers(path: str, modules: list[dict]) -> Described:
    pooling, head = None, []
    for module in modules[1:]:
        kind = module["type"].rsplit(".", 1)[-1]
        if kind == "Pooling":
            pooling = _pooling_name(path, _read_json(path, f"{module['path']}/config.json"))
        elif kind == "Dense":
            head.append(_read_dense(path, module["path"]))
        elif kind == "Normalize":
            head.append(Normalize())
        else:
            raise BadInput(f"'{path}' has a module of type {module['type']}, which is not supported here")
    if pooling is None:
        raise BadInput(f"'{path}': modules.json names no pooling module")
    length = (_read_json(path, "sentence_bert_config.json") or {}).get("max_seq_length")
    return Described(pooling, head, length)


def _pooling_name(path: str, settings: dict | None) -> str:
    settings = settings or {}
    old = {"pooling_mode_cls_token": "cls", "pooling_mode_mean_tokens": "mean"}
    named = settings.get("pooling_mode") or "+".join(
        old.get(key, key) for key, value in settings.items() if key.startswith("pooling_mode_") and value
    )
    for name, pooling in POOLINGS.items():
        if pooling.module == named and not pooling.keeps_head:
            return name
    raise BadInput(f"'{path}' pools by '{named}', which is not supported here")


def _read_dense(path: str, name: str) -> Dense:
    settings = _read_json(path, f"{name}/config.json")
    weights = _fetch(path, f"{name}/model.safetensors")
    if settings is None or weights is None:
        raise BadInput(f"'{path}' lacks {name}/config.json or {name}/model.safetensors of its head")
    linear = nn.Linear(settings["in_features"], settings["out_features"], bias=settings["bias"])
    tensors = load_file(weights)
    with torch.no_grad():
        linear.load_state_dict({key.removeprefix("linear."): value for key, value in tensors.items()})
    return Dense(linear, settings["activation_function"].rsplit(".", 1)[-1])


def _read_flow(path: str, sizes: dict) -> Flow:
    weights = _fetch(path, FLOW)
    if weights is None:
        raise BadInput(f"'{path}' lacks {FLOW}, the flow that its config.json describes; copy the whole folder")
    try:
        flow = Flow(**sizes)
        flow.load_state_dict(load_file(weights))
    except (RuntimeError, SafetensorError, TypeError) as error:
        reason = " ".join(str(error).split())
        raise BadInput(f"'{path}': {FLOW} is not the flow that its config.json describes: {reason}") from error
    return flow


def _read_json(path: str, name: str):
    file = _fetch(path, name)
    return None if file is None else json.loads(file.read_text(encoding="utf-8"))


def _fetch(path: str, name: str) -> Path | None:
    """A file of a local folder or of a hub repository; None when it does not exist there."""
    if Path(path).is_dir():
        file = Path(path) / name
        return file if file.is_file() else None
    try:
        return Path(hf_hub_download(path, name))
    except EntryNotFoundError:
        return None
