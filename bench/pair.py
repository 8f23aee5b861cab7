"""The published step and ours with equal random weights, and batches with realistic lengths."""

from __future__ import annotations

import copy
import itertools
import tempfile
from collections.abc import Callable
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from sentence_transformers import SentenceTransformer
from sentence_transformers.sentence_transformer.losses import MultipleNegativesRankingLoss
from sentence_transformers.sentence_transformer.modules import Pooling, Transformer
from torch import Tensor, nn
from transformers import BertConfig, BertForMaskedLM, BertModel, BertTokenizer
from transformers.masking_utils import create_bidirectional_mask

from data.masking import choose_tokens, corrupt
from data.tokenizer import SPECIAL
from data.views import IGNORED
from models import auxiliary, fast
from models.encoder import SentenceEncoder
from models.heads import projection_named
from models.objectives.infocse import Arguments, AuxiliaryMLM
from models.objectives.simcse import Contrastive
from models.training import EncoderForTraining

WEIGHT, TEMPERATURE, HEAD_LAYERS = 1e-5, 0.05, 2
# LENGTHS[n] of the first 11,914 lines of SimCSE's wiki1m_for_simcse.txt have n tokens (WordPiece of
# bert-base-uncased, special tokens included, truncated at 32). Mean 21.9; 27 % are truncated.
LENGTHS = [0, 0, 0, 34, 151, 236, 284, 275, 247, 231, 252, 256, 273, 302, 332, 373, 347, 384]
LENGTHS += [376, 363, 371, 392, 371, 400, 352, 330, 323, 303, 298, 315, 253, 261, 3229]
MODELS: dict[str, dict[str, Any]] = {
    "bert-base": {},  # BertConfig's defaults are its sizes
    "mini": {"hidden_size": 384, "num_hidden_layers": 6, "intermediate_size": 1536},
    "tiny": {  # for tests: vectors that differ
        "hidden_size": 32,
        "num_hidden_layers": 4,
        "num_attention_heads": 4,
        "intermediate_size": 64,
        "vocab_size": 1000,
        "initializer_range": 0.3,
    },
}
CLS, SEP, MASK = 101, 102, 103
FIRST_WORD = 200
WORDS = ["".join(letters) for letters in itertools.product("abcdefghijkl", repeat=3)]


def config_of(model: str, dropout: float = 0.1) -> BertConfig:
    rates: dict[str, Any] = {
        "hidden_dropout_prob": dropout,
        "attention_probs_dropout_prob": dropout,
    }
    return BertConfig(**MODELS[model], **rates)


def skip_from(config: BertConfig) -> int:
    """The layer that the auxiliary head reads, as in the configurations: 6 of 12, 3 of 6."""
    return config.num_hidden_layers // 2


def masked_lm(model: str, dropout: float = 0.1) -> BertForMaskedLM:
    """A masked language model with random weights, the same in every call."""
    torch.manual_seed(0)
    return BertForMaskedLM(config_of(model, dropout))


class PlainInfoCSE(nn.Module):
    """InfoCSE's step as in the authors' code: contrastive loss plus weighted auxiliary loss.

    Everything is padded. The frozen copy is a masked language model with the lower layers, and its
    unused head runs on every position. The auxiliary layers and their output matrix also run on
    every position; only the loss skips unmasked ones. It is not slower than necessary: attention is
    `scaled_dot_product_attention`, and both views go through the encoder together. The cost equals
    that of the published code with the same library (about 3.6 TFLOP for bert-base and 64 sentences
    of at most 32 tokens).

    Args:
        lm: becomes the frozen copy, without the layers above the one that the auxiliary layers
            read.
        weight: lambda.
    """

    def __init__(self, lm: BertForMaskedLM, weight: float = WEIGHT) -> None:
        super().__init__()
        self.encoder, self.output = copy.deepcopy(lm.bert), copy.deepcopy(lm.cls)
        self.c_head, self.projection, self.weight = new_head(lm), projection(lm), weight
        lm.bert.encoder.layer = lm.bert.encoder.layer[: skip_from(lm.config)]
        self.frozen = lm.requires_grad_(False)
        self.train()

    def train(self, mode: bool = True) -> PlainInfoCSE:
        super().train(mode)
        self.frozen.eval()  # as with --mlm_eval in the published script
        return self

    def forward(
        self,
        input_ids: Tensor,
        attention_mask: Tensor,
        masked_input_ids: Tensor,
        masked_labels: Tensor,
    ) -> Tensor:
        """The loss of two views and their masked twins, (2, B, L) each."""
        mask = attention_mask.flatten(0, 1)
        cls = self.encoder(input_ids.flatten(0, 1), mask).last_hidden_state[:, 0]
        auxiliary_loss = self._auxiliary(cls, masked_input_ids, mask, masked_labels)
        return self._contrastive(cls) + self.weight * auxiliary_loss

    def _contrastive(self, cls: Tensor) -> Tensor:
        with torch.autocast(cls.device.type, enabled=False):
            first, second = F.normalize(self.projection(cls.float()), dim=-1).chunk(2)
            targets = torch.arange(len(first), device=cls.device)
            return F.cross_entropy(first @ second.T / TEMPERATURE, targets)

    def _auxiliary(self, cls: Tensor, ids: Tensor, mask: Tensor, labels: Tensor) -> Tensor:
        with torch.no_grad():
            seen = self.frozen(ids.flatten(0, 1), mask, output_hidden_states=True)
        states = torch.cat([cls.unsqueeze(1), seen.hidden_states[-1][:, 1:]], dim=1)
        settings = self.frozen.config
        mask = create_bidirectional_mask(settings, inputs_embeds=states, attention_mask=mask)
        for layer in self.c_head:
            states = layer(states, mask)
        logits = self.output(states)  # (2 B, L, vocabulary)
        return F.cross_entropy(logits.float().flatten(0, 1), labels.flatten(), ignore_index=IGNORED)


def ours(lm: BertForMaskedLM, precision: str = "fp32", weight: float = WEIGHT, packed: bool = True):
    """The step of `run_unsup.py`; `lm` itself becomes its encoder."""
    fast.choose(lm, packed)
    lower = auxiliary.LowerLayers(lm.bert, skip_from(lm.config))
    aux = AuxiliaryMLM(
        lower, new_head(lm), auxiliary.VocabularyHead(lm), Arguments(aux_weight=weight)
    )
    if precision == "bf16":
        fast.cast_matrices(aux.lower, torch.bfloat16)
    encoder = SentenceEncoder(lm.bert, "cls_before_pooler", None, 512, packed)
    return EncoderForTraining(encoder, projection(lm), [Contrastive(TEMPERATURE), aux]).train()


def new_head(lm: BertForMaskedLM) -> nn.ModuleList:
    torch.manual_seed(1)
    return auxiliary.new_head(lm.bert, HEAD_LAYERS)


def projection(lm: BertForMaskedLM) -> nn.Module:
    torch.manual_seed(2)
    return projection_named("batch_norm", lm.config.hidden_size, lm.config.initializer_range)


def tokenizer_of(size: int) -> BertTokenizer:
    """A tokenizer whose vocabulary is `SPECIAL` and as many of `WORDS` as fit into `size`."""
    return BertTokenizer(vocab={word: i for i, word in enumerate([*SPECIAL, *WORDS][:size])})


def draw_lengths(generator: np.random.Generator, count: int) -> np.ndarray:
    """Token counts of `count` sentences, distributed like `LENGTHS`."""
    return generator.choice(len(LENGTHS), count, p=np.array(LENGTHS) / sum(LENGTHS))


def sentences(count: int, seed: int = 0) -> list[str]:
    """Sentences of `WORDS` with realistic lengths; those that `LENGTHS` cuts at 32 are longer."""
    generator = np.random.default_rng(seed)
    lengths = draw_lengths(generator, count)
    lengths[lengths == len(LENGTHS) - 1] += 8
    return [" ".join(generator.choice(WORDS, length - 2)) for length in lengths]


def peer(config: BertConfig, length: int) -> tuple[SentenceTransformer, nn.Module]:
    """SimCSE in sentence-transformers: [CLS] without projection, and its ranking loss."""
    torch.manual_seed(0)
    with tempfile.TemporaryDirectory() as folder:
        BertModel(config, add_pooling_layer=False).save_pretrained(folder)
        tokenizer_of(config.vocab_size).save_pretrained(folder)
        transformer = Transformer(folder, max_seq_length=length)
    modules = [transformer, Pooling(config.hidden_size, "cls")]
    model = SentenceTransformer(modules=modules, device="cpu").train()
    return model, MultipleNegativesRankingLoss(model, scale=1 / TEMPERATURE)


def take_step(model: nn.Module, call: Callable[[], Any], precision: str) -> None:
    """Forward and backward; gradients are freed at once to fit two models in memory."""
    with torch.autocast("cpu", dtype=torch.bfloat16, enabled=precision == "bf16"):
        output = call()  # a loss or an output with one
    (output if isinstance(output, Tensor) else output.loss).backward()
    model.zero_grad(set_to_none=True)


def batch(config: BertConfig, rows: int, longest: int, seed: int) -> dict[str, Tensor]:
    """A batch like the collator's: two equal views and their masked twins, (2, rows, L)."""
    generator = np.random.default_rng(seed)
    lengths = draw_lengths(generator, rows).clip(max=longest)
    position = np.arange(lengths.max())
    mask = np.tile(position < lengths[:, None], (2, 1, 1))
    ids = generator.integers(FIRST_WORD, config.vocab_size, (rows, len(position)))
    ids[:, 0] = CLS
    ids[np.arange(rows), lengths - 1] = SEP
    ids = np.where(mask, ids, config.pad_token_id)
    words = mask & (ids >= FIRST_WORD)
    chosen = choose_tokens(words, 0.4, generator.random(ids.shape))
    masked, labels = corrupt(
        ids, chosen, "bert", MASK, config.vocab_size, generator.random(ids.shape)
    )
    arrays = {
        "input_ids": ids,
        "attention_mask": mask,
        "masked_input_ids": masked,
        "masked_labels": labels,
    }
    return {name: torch.from_numpy(array.astype(np.int64)) for name, array in arrays.items()}
