"""Low-rank adapters on the linear layers of a backbone, by `peft` (LoRA: Hu et al. 2021, arXiv 2106.09685).

A matrix W stays frozen and acts as W + alpha / r * B A (section 4.1); A and B are trained, and B starts at zero. `peft`
replaces the layers in place, so calling a layer as a module calls the adapted one. Code that reads a layer's weights
must handle adapters itself; methods that cannot declare it (`Method.not_adapted`).

`peft` takes seconds to import, so only runs with adapters import it.
"""

import copy
from collections.abc import Sequence

from torch import Tensor, nn
from transformers import PreTrainedModel

from common.errors import BadInput, brief

EVERY = "all-linear"  # peft's name for all linear layers
_BASE = ".base_layer"  # peft's name for the wrapped layer


def add_adapters(backbone: PreTrainedModel, rank: int, alpha: float, dropout: float, targets: Sequence[str]) -> None:
    """Freeze a backbone and add trainable adapters to some of its linear layers.

    The adapters' outputs are multiplied by alpha / rank; `dropout` applies to their inputs. `targets` are suffixes of
    layer names, or `all-linear`; if empty, peft chooses by architecture, mostly queries and values. BadInput if a name
    matches no layer.
    """
    from peft import LoraConfig

    chosen = EVERY if list(targets) == [EVERY] else list(targets) or None
    try:
        backbone.add_adapter(LoraConfig(r=rank, lora_alpha=alpha, lora_dropout=dropout, target_modules=chosen))
    except ValueError as error:
        raise BadInput(f"--lora_target: {brief(error)}") from error
    suffixes, layers = () if chosen == EVERY else targets, _adapted(backbone)
    absent = [name for name in suffixes if not any(f".{path}".endswith(f".{name}") for path in layers)]
    if absent:  # peft complains only if it finds none of them
        raise BadInput(f"--lora_target {absent[0]}: no layer's name ends in this; one of them is {next(iter(layers))}")


def has_adapters(backbone: nn.Module) -> bool:
    """Whether `add_adapters` was called on this backbone."""
    return getattr(backbone, "_hf_peft_config_loaded", False)


def adapter_dropout(backbone: PreTrainedModel) -> float:
    """Return the dropout rate of a backbone's adapters; 0 without adapters."""
    return backbone.peft_config[backbone.active_adapters()[0]].lora_dropout if has_adapters(backbone) else 0.0


def without_adapters(backbone: PreTrainedModel) -> tuple[PreTrainedModel, dict[str, Tensor] | None]:
    """Return a shallow copy for `save_pretrained`, and its tensors with the adapters merged, W + alpha / r * B A.

    The tensors are None for a backbone without adapters.
    """
    plain = copy.copy(backbone)
    if not has_adapters(backbone):
        return plain, None
    plain._hf_peft_config_loaded = False  # otherwise only the adapters would be written
    layers = _adapted(backbone)
    tensors = {name.replace(_BASE, ""): value for name, value in backbone.state_dict().items() if ".lora_" not in name}
    for name, layer in layers.items():
        merged = layer.weight.detach() + layer.get_delta_weight(layer.active_adapters[0]).detach()
        tensors[f"{name}.weight"] = merged.cpu()  # a GPU holds one at a time
    return plain, tensors


def _adapted(backbone: nn.Module) -> dict[str, nn.Module]:
    from peft.tuners.lora import LoraLayer

    return {name: part for name, part in backbone.named_modules() if isinstance(part, LoraLayer)}
