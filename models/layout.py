"""The small files around a saved encoder, sentence-transformers' modules, written by hand; see `models.described`.

Written in both schemas of the pooling file, because text-embeddings-inference needs the old booleans and current
sentence-transformers the new name; type strings in the old form, which every version imports.
"""

from __future__ import annotations

import json
from pathlib import Path

from safetensors.torch import save_file

from models.flow import Flow
from models.heads import Dense

FORMAT = 1
FLOW = "flow.safetensors"
_TYPES = "sentence_transformers.models."


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
