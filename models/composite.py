"""The base class of this project's models."""

from torch import nn
from transformers import PreTrainedModel


class Composite(PreTrainedModel):
    """A model of models, which arrive initialised or loaded, and with an attention of their own."""

    _supports_sdpa = _supports_flash_attn = _supports_flex_attn = _supports_attention_backend = True
    _can_set_experts_implementation = classmethod(lambda cls: True)

    def _init_weights(self, module: nn.Module) -> None:
        """Do nothing."""
