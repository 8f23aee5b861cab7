"""Decoders as encoders of sentences: which models attend backwards only, and how they attend both ways.

transformers builds a decoder's masks from `config.is_causal`: where it is False, they leave out the padding alone. The
key stands in the saved config.json, so whoever loads the folder by transformers attends as the training did. LLM2Vec
(BehnamGhader et al. 2024, arXiv 2404.05961, section 2) does so before it trains SimCSE on a decoder.
"""

import torch
from transformers import PreTrainedModel

from common.errors import BadInput


def attends_backwards(model: PreTrainedModel) -> bool:
    """Whether the tokens of a model see no later ones, as its configuration and its attention modules say."""
    causal = any(getattr(part, "is_causal", False) is True for part in model.modules())
    return causal and getattr(model.config, "is_causal", None) is not False


def attend_both_ways(model: PreTrainedModel) -> None:
    """Let each token of a decoder see all others, from now on and wherever it is saved and loaded.

    Raises:
        BadInput: it does so already, or its code does not read the key.
    """
    if _sees_ahead(model):
        raise BadInput("--bidirectional: this model attends both ways as it is; leave it out")
    model.config.is_causal = False
    if not _sees_ahead(model):
        raise BadInput(f"--bidirectional: transformers' code of a '{model.config.model_type}' knows no such attention")


@torch.no_grad()
def _sees_ahead(model: PreTrainedModel) -> bool:
    """Whether a token's state depends on the next token."""
    ids, was = torch.tensor([[0, 0], [0, 1]]), model.training
    first, other = model.eval()(input_ids=ids, attention_mask=torch.ones_like(ids)).last_hidden_state[:, 0]
    model.train(was)
    return not torch.allclose(first, other, atol=1e-6)
