"""InfoCSE's step as its authors compute it: the baseline of the bench, and the oracle for our step's test.

Everything is padded. The frozen copy is a masked language model of the lower layers, and its unused head runs on every
position. The auxiliary layers and their output matrix run on every position too; only the loss skips the unmasked ones.
Nothing is made slower than it needs to be: attention is `scaled_dot_product_attention`, and both views go through the
encoder together. The cost equals that of the published code under the same library (about 3.6 TFLOP for bert-base, 64
sentences of at most 32 tokens).
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from transformers import BertForMaskedLM
from transformers.masking_utils import create_bidirectional_mask

from common.views import IGNORED


class PlainInfoCSE(nn.Module):
    """Contrastive loss plus weighted auxiliary loss of one batch.

    Args:
        encoder: a `BertModel` without pooler.
        projection: (2 B, H) -> (2 B, H).
        frozen: the lower layers, and above them the head of the masked language model they come from.
        head: the auxiliary layers.
        output: hidden states -> logits.
        weight: lambda.
        temperature: tau.
    """

    def __init__(
        self,
        encoder: nn.Module,
        projection: nn.Module,
        frozen: BertForMaskedLM,
        head: nn.ModuleList,
        output: nn.Module,
        weight: float,
        temperature: float,
    ) -> None:
        super().__init__()
        self.encoder, self.projection = encoder, projection
        self.frozen = frozen.requires_grad_(False)
        self.c_head, self.output = head, output
        self.weight, self.temperature = weight, temperature

    def train(self, mode: bool = True) -> PlainInfoCSE:
        super().train(mode)
        self.frozen.eval()  # the base script's --mlm_eval
        return self

    def forward(
        self, input_ids: Tensor, attention_mask: Tensor, masked_input_ids: Tensor, masked_labels: Tensor
    ) -> Tensor:
        """The loss of two views and their masked twins, (2, B, L) each."""
        mask = attention_mask.flatten(0, 1)
        cls = self.encoder(input_ids=input_ids.flatten(0, 1), attention_mask=mask).last_hidden_state[:, 0]
        return self._contrastive(cls) + self.weight * self._auxiliary(cls, masked_input_ids, mask, masked_labels)

    def _contrastive(self, cls: Tensor) -> Tensor:
        with torch.autocast(cls.device.type, enabled=False):
            first, second = F.normalize(self.projection(cls.float()), dim=-1).chunk(2)
            return F.cross_entropy(first @ second.T / self.temperature, torch.arange(len(first)))

    def _auxiliary(self, cls: Tensor, ids: Tensor, mask: Tensor, labels: Tensor) -> Tensor:
        with torch.no_grad():
            seen = self.frozen(input_ids=ids.flatten(0, 1), attention_mask=mask, output_hidden_states=True)
        states = torch.cat([cls.unsqueeze(1), seen.hidden_states[-1][:, 1:]], dim=1)
        mask = create_bidirectional_mask(config=self.frozen.config, inputs_embeds=states, attention_mask=mask)
        for layer in self.c_head:
            states = layer(states, mask)
        logits = self.output(states)  # (2 B, L, vocabulary)
        return F.cross_entropy(logits.float().flatten(0, 1), labels.flatten(), ignore_index=IGNORED)
