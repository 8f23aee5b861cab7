"""Encoder, projection head and objectives as one trainable model; composition only."""

import logging
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from transformers.utils import ModelOutput

from common.arguments import ModelArguments
from common.errors import BadInput
from data.template import mask_place
from models import fast
from models.auxiliary import LowerLayers, TiedHead, load_masked_lm
from models.bag_of_words import BagOfWords
from models.collectives import gather_with_gradient, local_rows
from models.contrast import at_least_float32, mean_cosine, uniformity
from models.encoder import Composite, SentenceEncoder, given
from models.heads import project, projection_named
from models.loading import NO_LIMIT, load_backbone, load_config, set_dropout, usable_length
from models.objectives.base import Batch, Checkpoint, Encoded, Method, Objective, add_up
from models.perturb import Perturbation
from models.pooling import pooling_named
from models.saved_format import Described, read_modules
from models.teacher import Teacher

logger = logging.getLogger(__name__)


@dataclass
class TrainingOutput(ModelOutput):
    """The loss to minimise, and its raw terms by name."""

    loss: Tensor
    terms: dict[str, Tensor] = None  # type: ignore[assignment]  # its only default


class EncoderForTraining(Composite):
    """Sum of the objectives' weighted terms on one batch.

    Args:
        encoder: the artefact; its kept head, if any, is the projection.
        projection: a head for training only, or None.
        objectives: the terms of the loss.
    """

    # The loss is a mean over the batch, so the Trainer must divide it by the accumulation steps.
    accepts_loss_kwargs = False
    supports_gradient_checkpointing = True

    def __init__(
        self,
        encoder: SentenceEncoder,
        projection: nn.Module | None,
        objectives: Sequence[Objective],
    ) -> None:
        super().__init__(encoder.config)
        self.encoder = encoder
        read = any(objective.reads_projection for objective in objectives)
        # A head that no loss reads would never get a gradient.
        self.projection = projection if read else None
        self.objectives: Any = nn.ModuleList(objectives)
        fast.lighten_dropout(self)
        self.post_init()

    @property
    def head(self) -> nn.Module | None:
        """The projection head: the encoder's if it keeps one."""
        return self.encoder.head if self.encoder.head is not None else self.projection

    def forward(self, **inputs: Tensor) -> TrainingOutput:
        """Return the loss of one training step; inputs as for `Batch.of`."""
        batch = Batch.of(**inputs)
        encoded = self.encode(batch)
        self.project(encoded, batch)
        terms = [
            term for objective in self.objectives for term in objective(encoded, batch).items()
        ]
        loss, values = add_up(terms, batch.input_ids.device)
        return TrainingOutput(loss=loss, terms=values)

    def encode(self, batch: Batch) -> Encoded:
        """Encode all views in one forward: they differ only in ids and dropout masks."""
        shape = batch.input_ids.shape[:2]
        rates = None if batch.dropout_rates is None else batch.dropout_rates.flatten(0, 1)
        change = None
        if batch.kept is not None and batch.positions is not None:
            change = Perturbation(batch.positions.flatten(0, 1), batch.kept.flatten(0, 1))
        ids = batch.input_ids.flatten(0, 1)
        with_tokens = any(objective.reads_tokens for objective in self.objectives)
        mask = batch.attention_mask.flatten(0, 1)
        with fast.cast_together(self.encoder, ids.device):
            output = self.encoder(ids, mask, rates, change, with_tokens)
        pooled, cls = output.pooled.unflatten(0, shape), output.cls.unflatten(0, shape)
        encoded = Encoded(pooled, cls, self.encoder, self.head)
        if output.tokens is not None:
            encoded.tokens = output.tokens.unflatten(0, shape)
        return encoded

    def project(self, encoded: Encoded, batch: Batch) -> None:
        """Gather, then project in float32, so that batch statistics are those of all processes."""
        if not any(objective.reads_projection for objective in self.objectives):
            return
        pooled = at_least_float32(encoded.pooled)
        for objective in self.objectives:
            pooled = objective.cleaned(pooled, encoded, batch)
        everyone = gather_with_gradient(pooled)  # (V, N, H)
        encoded.projected = project(self.head, everyone)
        encoded.local_projected = local_rows(encoded.projected)

    @torch.no_grad()
    def probe(self, **inputs: Tensor) -> dict[str, float]:
        """Diagnostics on one batch in evaluation mode: the vectors' spread, the objectives' own."""
        was_training = self.training
        self.eval()
        batch = Batch.of(**inputs)
        encoded = self.encode(batch)
        values = {
            "mean_cosine": mean_cosine(encoded.pooled[0]),
            "uniformity": uniformity(encoded.pooled[0]),
        }
        for objective in self.objectives:
            values |= objective.probe(encoded, batch)
        self.train(was_training)
        return {name: float(value) for name, value in values.items()}

    def after_step(self) -> None:
        """Call the objectives' hooks after an optimizer step."""
        for objective in self.objectives:
            objective.after_step(self.encoder, self.head)


def build_model(
    method: Method, method_args, model_args: ModelArguments, tokenizer, bf16: bool = False
) -> EncoderForTraining:
    """Encoder, projection head and objectives from a checkpoint; `bf16` casts frozen parts."""
    source = model_args.model_name_or_path
    assert source is not None
    config = load_config(source)
    set_dropout(config, model_args.dropout)
    with_output = method.reads_output(method_args) or model_args.bow_weight
    model = load_masked_lm(source, config) if with_output else load_backbone(source, config)
    backbone: Any = model.base_model
    described = _describe(source, model_args.pooling)
    length = min(
        usable_length(backbone, tokenizer, described.max_length), described.max_length or NO_LIMIT
    )
    prompts = {"query": model_args.query_prompt, "document": model_args.document_prompt}
    place, default_prompt = mask_place(tokenizer), described.default_prompt
    if place is not None and default_prompt:  # training puts no prompt into a template
        said = "'%s' puts the prompt %r before every text; the method's template takes its place"
        logger.warning(said, source, described.prompts.get(default_prompt))
        default_prompt = None
    encoder = SentenceEncoder(
        backbone,
        model_args.pooling,
        max_length=length,
        packed=model_args.packed is not False,
        train_pooling=model_args.train_pooling,
        place=place,
        prompts={**described.prompts, **given(prompts)},
        default_prompt=default_prompt,
    )
    init_std = getattr(config.get_text_config(), "initializer_range", 0.02)  # as in the library
    projection = projection_named(model_args.projection, config.hidden_size, init_std)
    objectives = method.build(method_args, encoder, projection, Checkpoint(source, model))
    if model_args.bow_weight:
        objectives.append(BagOfWords(TiedHead(model), model_args.bow_weight))
    if bf16:  # autocast reads nothing else of these; SG-OPT's copy needs the precision
        for part in nn.ModuleList(objectives).modules():
            if isinstance(part, (LowerLayers, Teacher)):
                fast.cast_matrices(part, torch.bfloat16)
    kept = pooling_named(model_args.pooling).keeps_head
    learns = projection is not None and any(objective.reads_projection for objective in objectives)
    if kept and not learns:
        raise BadInput(
            "--pooling cls saves the projection head, but no loss trains one; use cls_before_pooler"
        )
    encoder.head = projection if kept else None
    encoder.normalized = described.normalizes and not kept
    return EncoderForTraining(encoder, None if kept else projection, objectives)


def _describe(source: str, pooling: str) -> Described:
    """The model's own description; warns if its pooling or head is dropped."""
    try:
        described = read_modules(source)
    except BadInput as error:
        logger.warning("%s; training uses only its backbone, with --pooling %s", error, pooling)
        described = None
    dropped = len(described.head) - described.normalizes if described else 0
    if described and (dropped or described.pooling != pooling):
        head = f" and a head of {dropped} modules" if dropped else ""
        logger.warning(
            "'%s' has pooling %s%s; training uses only its backbone, with --pooling %s",
            *(source, described.pooling, head, pooling),
        )
    return described or Described(pooling, [], None)
