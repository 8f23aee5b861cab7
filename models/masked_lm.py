"""Stage 1 of InfoCSE: a masked language model and its auxiliary network, trained together."""

from __future__ import annotations

import copy
from pathlib import Path

import torch
from safetensors.torch import save_file
from torch import Tensor, nn
from transformers import PreTrainedModel

from models.auxiliary import (
    HEAD_FILE,
    PREFIX,
    backbone_of,
    check_depth,
    family_of,
    head_input,
    masked_token_loss,
    run_layers,
)
from models.collectives import mean_over_tokens
from models.dropout import lighten_dropout
from models.loading import quiet
from models.packed import Packing, make_packable
from models.recompute import exchange_activations, recomputing
from models.training import TrainingOutput
from models.vocabulary_loss import packed_token_loss


class AuxiliaryMaskedLM(PreTrainedModel):
    """MLM loss of the backbone plus MLM loss of the auxiliary head, both through the tied output matrix.

    Source: InfoCSE section 3.1 (equations of L_aux and L_mlm, summed with equal weight); Condenser's
    pre-training with `late_mlm`.

    Args:
        lm: a `*ForMaskedLM` of a known family.
        head: the auxiliary layers.
        skip_from: the layer whose states the head sees at positions > 0; 0 is the embedding output.
        packed: compute real tokens only, and the last layers and the logits at masked ones, see `models.packed`.
    """

    # `num_items_in_batch` normalises over accumulation steps and processes (Trainer's own mechanism).
    accepts_loss_kwargs = True
    _supports_sdpa = _supports_flash_attn = _supports_flex_attn = _supports_attention_backend = True

    def __init__(self, lm: PreTrainedModel, head: nn.ModuleList, skip_from: int, packed: bool = False) -> None:
        super().__init__(lm.config)
        check_depth(lm.config, skip_from)
        self.lm = lm
        self.c_head = head
        self.skip_from = skip_from
        self.packed = packed
        if packed:
            make_packable(lm)
        lighten_dropout(self)
        exchange_activations(self)
        self.post_init()

    def _init_weights(self, module: nn.Module) -> None:
        """Nothing: every part arrives initialised or loaded, and must not be drawn anew."""

    def forward(
        self, input_ids: Tensor, attention_mask: Tensor, labels: Tensor, num_items_in_batch: Tensor | None = None
    ) -> TrainingOutput:
        """Masked ids, mask and labels (-100 where unmasked), all (B, L).

        Without `num_items_in_batch` the loss is the mean over the masked tokens of all processes; with it, the sum
        of this process over that number, which the Trainer scales.
        """
        with recomputing(input_ids.device):
            mlm, aux, count = self._losses(input_ids, attention_mask, labels)
        if num_items_in_batch is None:
            loss = mean_over_tokens(mlm + aux, count)
        else:
            loss = (mlm + aux) / num_items_in_batch.clamp(min=1)
        means = {"mlm": mlm.detach() / count.clamp(min=1), "aux_mlm": aux.detach() / count.clamp(min=1)}
        return TrainingOutput(loss=loss, terms=means)

    def _losses(
        self, input_ids: Tensor, attention_mask: Tensor, labels: Tensor, shuffle_cls: bool = False
    ) -> tuple[Tensor, Tensor, Tensor]:
        """Sums of the two losses, and the number of labelled tokens; `shuffle_cls` gives rows each other's [CLS]."""
        if self.packed:
            return self._packed_losses(input_ids, attention_mask, labels, shuffle_cls)
        states = backbone_of(self.lm)(
            input_ids=input_ids, attention_mask=attention_mask, output_hidden_states=True
        ).hidden_states
        cls = states[-1][:, 0].roll(1, 0) if shuffle_cls else states[-1][:, 0]
        head = run_layers(self.c_head, head_input(cls, states[self.skip_from]), attention_mask, self.config)
        output = self.lm.get_submodule(family_of(self.config).output)
        mlm, count = masked_token_loss(output, states[-1], labels)
        return mlm, masked_token_loss(output, head, labels)[0], count

    def _packed_losses(
        self, input_ids: Tensor, attention_mask: Tensor, labels: Tensor, shuffle_cls: bool
    ) -> tuple[Tensor, Tensor, Tensor]:
        """The same on real tokens; the last layers for the [CLS] and the labelled tokens, all that is read."""
        packing, backbone, family = Packing.of(attention_mask), backbone_of(self.lm), family_of(self.config)
        tokens, targets = packing.labelled(labels)
        lower = packing.embed(backbone.embeddings, input_ids)
        lower = packing.run(backbone.encoder.layer[: self.skip_from], lower)
        read = torch.cat([packing.first, tokens]).unique()  # rising
        states = packing.run(backbone.encoder.layer[self.skip_from :], lower, read)
        cls, late = (packing.at(states, torch.searchsorted(read, part)) for part in (packing.first, tokens))
        cls = cls[0]
        head = packing.with_first(lower, cls.roll(1, 0) if shuffle_cls else cls)
        head = packing.run(self.c_head, head, tokens)
        output = self.lm.get_submodule(family.output)
        transform, decoder = family.transform(output), output.decoder
        mlm, count = packed_token_loss(transform, decoder, late, targets)
        return mlm, packed_token_loss(transform, decoder, head, targets)[0], count

    @torch.no_grad()
    def probe(self, input_ids: Tensor, attention_mask: Tensor, labels: Tensor) -> dict[str, float]:
        """Losses on one batch in evaluation mode, and the auxiliary loss when each row sees another row's [CLS]."""
        was_training = self.training
        self.eval()
        mlm, aux, count = self._losses(input_ids, attention_mask, labels)
        _, foreign, _ = self._losses(input_ids, attention_mask, labels, shuffle_cls=True)
        sums = {"mlm": mlm, "aux_mlm": aux, "aux_mlm_shuffled_cls": foreign}
        seen = {name: float(total / count.clamp(min=1)) for name, total in sums.items()}
        self.train(was_training)
        return seen

    def after_step(self) -> None:
        """Nothing to do after an optimizer step."""

    def save(self, folder: str, tokenizer) -> None:
        """An unprefixed `*ForMaskedLM` and its tokenizer, and the head in `aux_head.safetensors`."""
        lm = copy.copy(self.lm)
        lm.config = copy.deepcopy(self.lm.config)
        lm.config.skip_from, lm.config.head_layers = self.skip_from, len(self.c_head)
        with quiet():
            lm.save_pretrained(folder)
        tokenizer.save_pretrained(folder)
        tensors = {PREFIX + name: value.contiguous() for name, value in self.c_head.state_dict().items()}
        save_file(tensors, Path(folder) / HEAD_FILE)
