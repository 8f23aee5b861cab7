"""TSDAE: reconstruct a sentence from the vector of its corrupted copy (arXiv 2104.06979, 3).

Words are deleted, the encoder reads the rest, and a decoder generates the original sentence token
by token. Its cross-attention sees only the sentence vector. Its other weights are the encoder's, so
it adds only the cross-attention and the head of the masked language model; neither is saved in the
result.

Different from the paper: words are those of the tokenizer's pre-tokenisation, not NLTK's.

    python run_unsup.py --config configs/tsdae-bert-base.yaml
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any, Literal

from torch import Tensor, nn
from transformers import PreTrainedModel

from common.errors import BadInput
from common.ranges import Rate, flag
from data.views import IGNORED, View
from models.auxiliary import TiedHead, embedded, load_masked_lm
from models.families import check_apart, family_of, layers_of
from models.objectives.base import Batch, Encoded, Method, MethodArguments, Objective, Term, needed
from models.objectives.cropping import delete


@dataclass
class Arguments(MethodArguments):
    """Options of the corruption and the decoder."""

    delete_rate: Rate = flag(0.6, "share of the words to delete (paper and script)")
    output_init: Literal["checkpoint", "new"] = flag(
        "checkpoint",
        "the decoder's output head: read it from the checkpoint, or make a new one if it has none",
    )


class VectorAttention(nn.Module):
    """Attention to one vector, with dropout, projection, residual and norm of the backbone's kind.

    The softmax over one key is 1, so queries and keys would have no effect and no gradient: they
    are omitted. Only the value remains, with dropout per head and token.
    """

    def __init__(self, backbone: PreTrainedModel) -> None:
        super().__init__()
        config = backbone.config
        self.heads = config.num_attention_heads
        self.value = nn.Linear(config.hidden_size, config.hidden_size)
        self.dropout = nn.Dropout(config.attention_probs_dropout_prob)
        layer: Any = layers_of(backbone)[0]
        self.output = type(layer.attention.output)(config)
        self.apply(backbone._init_weights)

    def forward(
        self, states: Tensor, vectors: Tensor, per_token: Callable[[Tensor], Tensor]
    ) -> Tensor:
        """States, and sentences' vectors, (B, H) -> states; `per_token` repeats these."""
        values = per_token(self.value(vectors)).view(*states.shape[:-1], self.heads, -1)
        weights = self.dropout(values.new_ones(*states.shape[:-1], self.heads, 1))
        return self.output((weights * values).flatten(-2), states)


@dataclass(frozen=True)
class DecoderLayer:
    """A layer of the encoder with attention to the sentence vectors after its self-attention."""

    layer: Any  # BERT-like
    cross: Callable[..., Tensor]
    vectors: Tensor
    per_token: Callable[[Tensor], Tensor]

    @property
    def attention(self) -> nn.Module:
        return self.layer.attention

    def __call__(self, states: Tensor, mask) -> Tensor:
        states, _ = self.layer.attention(states, mask)
        return self.layer.feed_forward_chunk(self.cross(states, self.vectors, self.per_token))


class Reconstruction(Objective):
    """Cross entropy of every token of the original, given those before it and the vector."""

    def __init__(self, backbone: PreTrainedModel, output: TiedHead) -> None:
        super().__init__()
        self.cross = nn.ModuleList(VectorAttention(backbone) for _ in layers_of(backbone))
        self.output = output

    def forward(self, encoded: Encoded, batch: Batch) -> dict[str, Term]:
        backbone, vectors = encoded.encoder.backbone, encoded.pooled.flatten(0, 1)
        ids = needed(batch.target_input_ids).flatten(0, 1)  # (T, L)
        mask = needed(batch.target_attention_mask).flatten(0, 1)
        mask = mask[:, 1:]  # of tokens with a predecessor
        # All tokens but the last, which has no successor.
        states = embedded(backbone, ids[:, :-1], mask, causal=True)
        pairs = zip(layers_of(backbone), self.cross, strict=True)
        states = states.through(
            [DecoderLayer(*pair, vectors, states.tokens.per_token) for pair in pairs], late=False
        )
        following = ids[:, 1:].masked_fill(mask == 0, IGNORED)
        total, count = self.output.token_loss(backbone, states, following)
        return {"reconstruction": Term(total, 1.0, count)}

    def tokens(self, batch: Batch) -> Tensor:
        return needed(batch.target_attention_mask)[..., 1:].sum()


class TSDAE(Method):
    """Reconstruction of a sentence from the vector of its corrupted copy; no projection head."""

    arguments = Arguments

    def views(self, args: Arguments) -> list[View]:
        return [View(partial(delete, rate=args.delete_rate), words=True, target=True)]

    def reads_output(self, args: Arguments) -> bool:
        return args.output_init != "new"

    def build(self, args: Arguments, encoder, projection, source) -> list[Objective]:
        config = encoder.config
        check_apart(config, "the decoder of TSDAE")
        if not family_of(config).like_bert:
            raise BadInput(
                f"the decoder of TSDAE needs BERT-like layers, which a '{config.model_type}' does "
                "not have"
            )
        lm = source.model
        if not self.reads_output(args):
            lm = load_masked_lm(source.path, new_output=True)
        return [Reconstruction(encoder.backbone, TiedHead(lm))]


CITATION = """@misc{wang2021tsdae,
  title = {{TSDAE}: Using Transformer-based Sequential Denoising Auto-Encoder for Unsupervised
  Sentence Embedding Learning},
  author = {Wang, Kexin and Reimers, Nils and Gurevych, Iryna},
  year = {2021}, eprint = {2104.06979}, archivePrefix = {arXiv}}"""
METHOD = TSDAE(CITATION)
