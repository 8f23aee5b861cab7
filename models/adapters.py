"""Low-rank adapters on the linear layers of a backbone, by `peft` (LoRA: Hu et al. 2021, arXiv 2106.09685).

A matrix W of the start stays as it is and acts as W + alpha / r * B A (section 4.1); B, which is zero at the start, and
A are trained. `peft` exchanges the layers in place, so whatever calls a layer as a module calls the adapted one. What
reads a layer's weights must know of it; methods that do say so (`Method.not_adapted`).

`peft` is imported only for a run that asks for it: that takes seconds.
"""

import copy
from collections.abc import Sequence

from torch import Tensor, nn
from transformers import PreTrainedModel

from common.errors import BadInput

FOLDER = "adapter"  # beside a saved encoder; in its root it would make an adapter of the folder
EVERY = "all-linear"  # peft's name of all linear layers
_BASE = ".base_layer"  # where peft keeps the layer that it adapts


def add_adapters(backbone: PreTrainedModel, rank: int, alpha: float, dropout: float, targets: Sequence[str]) -> None:
    """Freeze a backbone and give some of its linear layers adapters, which alone are trained.

    The adapters' outputs are multiplied by alpha / rank; `dropout` is that of what they read. `targets` are the ends of
    the layers' names, or `all-linear`; empty, they are peft's choice for the architecture, queries and values in most.
    BadInput for a name of no layer, or of one that is not linear.
    """
    from peft import LoraConfig

    chosen = EVERY if list(targets) == [EVERY] else list(targets) or None
    try:
        backbone.add_adapter(LoraConfig(r=rank, lora_alpha=alpha, lora_dropout=dropout, target_modules=chosen))
    except ValueError as error:
        reason = " ".join(str(error).split()).partition(". ")[0]
        kind = backbone.config.model_type
        raise BadInput(f"--lora_target: name linear layers of this '{kind}', or {EVERY} ({reason})") from error
    found = _adapted(backbone)
    absent = [name for name in targets if chosen != EVERY and not any(f".{one}".endswith(f".{name}") for one in found)]
    if absent:
        raise BadInput(f"--lora_target {absent[0]}: no layer's name ends so; others do, such as {next(iter(found))}")
    for name, layer in found.items():
        if not isinstance(layer.get_base_layer(), nn.Linear):
            raise BadInput(f"--lora_target: {name} is no linear layer")


def has_adapters(backbone: nn.Module) -> bool:
    """Whether `add_adapters` was called."""
    return getattr(backbone, "_hf_peft_config_loaded", False)


def adapter_dropout(backbone: PreTrainedModel) -> float:
    """The dropout rate of a backbone's adapters; 0 where it has none."""
    return backbone.peft_config[backbone.active_adapters()[0]].lora_dropout if has_adapters(backbone) else 0.0


def without_adapters(backbone: PreTrainedModel) -> tuple[PreTrainedModel, dict[str, Tensor] | None]:
    """A shallow copy that `save_pretrained` writes whole, and its tensors with W + alpha / r * B A for each W.

    The tensors are None for a backbone without adapters, which are its own then.
    """
    plain = copy.copy(backbone)
    if not has_adapters(backbone):
        return plain, None
    plain._hf_peft_config_loaded = False  # with it, only the adapters would be written
    layers = _adapted(backbone)
    tensors = {name.replace(_BASE, ""): value for name, value in backbone.state_dict().items() if ".lora_" not in name}
    for name, layer in layers.items():
        tensors[f"{name}.weight"] = layer.weight.detach() + layer.get_delta_weight(layer.active_adapters[0]).detach()
    return plain, tensors


def _adapted(backbone: nn.Module) -> dict[str, nn.Module]:
    from peft.tuners.lora import LoraLayer

    return {name: part for name, part in backbone.named_modules() if isinstance(part, LoraLayer)}
