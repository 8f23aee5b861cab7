"""Stage 1 of InfoCSE: a masked language model and its auxiliary network, trained together."""

import copy
from pathlib import Path

import torch
from safetensors.torch import save_file
from torch import Tensor, nn
from transformers import PreTrainedModel

from common.files import share_weights
from data.views import IGNORED
from models import fast
from models.auxiliary import HEAD_FILE, PREFIX, check_depth
from models.bag_of_words import bag_of_words
from models.collectives import means_over_tokens
from models.encoder import Composite
from models.families import layers_of, output_of
from models.loading import quiet
from models.objectives.base import Batch
from models.training import TrainingOutput


class AuxiliaryMaskedLM(Composite):
    """MLM losses of the backbone and of the auxiliary head, both through the tied output matrix.

    Source: InfoCSE section 3.1 (equations of L_aux and L_mlm, summed with equal weight);
    Condenser's pre-training with `late_mlm`. Its batch has one view, with the twin `masked`.
    Optional parts go beyond the published ones:

    - the twin `aux`: the head has its own masks, usually more (RetroMAE, arXiv 2205.12035: 30 % for
      the encoder and 50 % for the decoder; CoT-MAE, arXiv 2208.07670: 30 % and 45 %).
    - `words`: [CLS] must also predict the words of the text, through the same output matrix, with
      no layer between (bag-of-words prediction, arXiv 2401.11248).

    Args:
        lm: a `*ForMaskedLM` of a known family.
        head: the auxiliary layers; without any this is a plain masked language model.
        skip_from: the layer whose states the head sees at positions > 0; 0 is the embedding output.
        packed: compute only real tokens, and the last layers and logits only at masked ones, see
            `models.fast`.
        bow_weight: weight of the bag-of-words loss.
        clean_cls: the head's [CLS] comes from the unmasked text, as in stage 2. Published: from the
            masked text, like the states below it, so that it adds only what the upper layers
            compute.
    """

    # `num_items_in_batch` normalises over accumulation steps and processes, see `count_targets`.
    accepts_loss_kwargs = True
    supports_gradient_checkpointing = True

    def __init__(
        self,
        lm: PreTrainedModel,
        head: nn.ModuleList,
        skip_from: int,
        packed: bool = False,
        bow_weight: float = 0.0,
        clean_cls: bool = False,
    ) -> None:
        super().__init__(lm.config)
        if not len(head):  # any layer will do
            skip_from = min(skip_from, len(layers_of(lm.base_model)) - 1)
        check_depth(lm.config, skip_from)
        self.lm, self.c_head = lm, head
        self.skip_from, self.bow_weight, self.clean_cls = skip_from, bow_weight, clean_cls
        fast.choose(lm, packed)
        fast.lighten_dropout(self)
        self.post_init()

    @property
    def packed(self) -> bool:
        """Whether only real tokens are computed."""
        return fast.is_packed(self.lm.config)

    def forward(self, num_items_in_batch: Tensor | None = None, **inputs: Tensor) -> TrainingOutput:
        """Return the loss of one step; inputs as for `Batch.of`.

        Without `num_items_in_batch` each loss is the mean over the targets of all processes. With
        it, (losses,) from `count_targets`, it is this process's sum divided by that number, which
        the Trainer scales.
        """
        batch = Batch.of(**inputs)
        device = batch.input_ids.device
        with fast.cast_together(self.lm.base_model, device):
            sums = self._losses(batch)
        totals, counts = zip(*sums.values(), strict=True)
        if num_items_in_batch is None:
            means = means_over_tokens(totals, counts)
        else:
            pairs = zip(totals, num_items_in_batch.clamp(min=1), strict=True)
            means = [total / count for total, count in pairs]
        loss, terms = torch.zeros((), device=device), {}
        for name, mean in zip(sums, means, strict=True):
            loss = loss + (self.bow_weight if name == "bow" else 1.0) * mean
            terms[name] = mean.detach()
        return TrainingOutput(loss=loss, terms=terms)

    def count_targets(self, inputs: dict[str, Tensor]) -> Tensor:
        """The number of targets of each loss, in the order of the losses: (losses,)."""
        aux = inputs.get("aux_labels", inputs["masked_labels"])
        words = [inputs["words"]] if "words" in inputs else []
        targets = [inputs["masked_labels"], *([aux] if self.c_head else []), *words]
        return torch.stack([(labels != IGNORED).sum() for labels in targets])

    def _losses(self, batch: Batch, shuffle_cls: bool = False) -> dict[str, tuple[Tensor, Tensor]]:
        """Sum and number of targets of each loss, by name.

        `shuffle_cls` gives every row another row's [CLS].
        """
        mask, backbone, twin = batch.attention_mask[0], self.lm.base_model, batch.twins["masked"]
        layers = layers_of(backbone)
        lower_layers, upper_layers = layers[: self.skip_from], layers[self.skip_from :]

        def below(ids: Tensor) -> fast.States:
            return fast.embedded(backbone, ids[0], mask).through(lower_layers, late=False)

        lower = below(twin.input_ids)
        cls, late = lower.through(upper_layers).both(twin.labels[0])
        if self.clean_cls:
            cls = below(batch.input_ids).through(upper_layers).first
        labelled = {"mlm": late}
        if self.c_head:
            name = "aux" if "aux" in batch.twins else "masked"
            lower = below(batch.twins["aux"].input_ids) if name == "aux" else lower
            states = lower.with_first(cls.roll(1, 0) if shuffle_cls else cls).through(self.c_head)
            labelled["aux_mlm"] = states.labelled(batch.twins[name].labels[0])
        transform, decoder = output_of(self.lm)
        sums = {}
        for name, part in labelled.items():
            sums[name] = fast.token_loss(transform, decoder, part)
        if batch.words is not None:
            sums["bow"] = bag_of_words(decoder(transform(cls)), batch.words[0])
        return sums

    @torch.no_grad()
    def probe(self, **inputs: Tensor) -> dict[str, float]:
        """Losses on one batch in evaluation mode, also if each row sees another row's [CLS]."""
        was_training, batch = self.training, Batch.of(**inputs)
        self.eval()
        losses = _means(self._losses(batch))
        if self.c_head:
            shuffled = _means(self._losses(batch, shuffle_cls=True))
            losses["aux_mlm_shuffled_cls"] = shuffled["aux_mlm"]
        self.train(was_training)
        return {name: float(value) for name, value in losses.items()}

    def after_step(self) -> None:
        """Nothing to do after an optimizer step."""

    def save(self, folder: str, tokenizer) -> None:
        """Write an unprefixed `*ForMaskedLM`, its tokenizer and, if any, the head in its file."""
        lm = copy.copy(self.lm)
        lm.config = copy.deepcopy(self.lm.config)
        # Those of the initial checkpoint: its auxiliary head, and how it made vectors.
        for name in ("skip_from", "head_layers", "sentence_embedding"):
            vars(lm.config).pop(name, None)
        if self.c_head:
            lm.config.skip_from, lm.config.head_layers = self.skip_from, len(self.c_head)
        with quiet():
            lm.save_pretrained(folder)
        tokenizer.save_pretrained(folder)
        if self.c_head:
            tensors = {
                PREFIX + name: value.contiguous()
                for name, value in self.c_head.state_dict().items()
            }
            save_file(tensors, Path(folder) / HEAD_FILE)
        share_weights(Path(folder))


def _means(sums: dict[str, tuple[Tensor, Tensor]]) -> dict[str, Tensor]:
    return {name: total / count.clamp(min=1) for name, (total, count) in sums.items()}
