"""Mirror-BERT: dropout and a masked span make the two views (Liu et al. 2021, arXiv 2104.08027).

Different from the paper, which replaces five characters of the string by [MASK] and so splits word
pieces: here whole word pieces are replaced, two by default, since five characters of English
Wikipedia touch one (41 %), two (51 %) or more (8 %). Drophead, their variant, is not implemented.

    python run_unsup.py --config configs/mirror-bert-base.yaml
"""

from dataclasses import dataclass
from functools import partial

import numpy as np

from common.ranges import CountOrZero, Positive, flag
from data.views import MASK, View
from models.contrast import nt_xent
from models.objectives.base import Contrast, Method, MethodArguments, Objective

SHORTEST = 6  # tokens of a sentence to mask; about the 30 characters of the official code


@dataclass
class Arguments(MethodArguments):
    """Mirror-BERT's options; defaults are those of the official script for sentences."""

    temperature: Positive = flag(0.04, "tau (mirror_sentence_bert.sh)")
    span_tokens: CountOrZero = flag(
        2, "tokens that one mask token replaces (ours; code: 5 characters); 0: none"
    )


def mask_span(
    ids: np.ndarray, starts: np.ndarray, generator: np.random.Generator, length: int
) -> np.ndarray:
    """Replace `length` consecutive tokens by one mask token: (L,) ids -> (L - length + 1,) ids.

    The position is uniform. A sentence below `SHORTEST` tokens, or not longer than the span, does
    not change.
    """
    if len(ids) < SHORTEST or len(ids) <= length:
        return ids
    position = generator.integers(0, len(ids) - length, endpoint=True)
    return np.concatenate([ids[:position], [MASK], ids[position + length :]]).astype(ids.dtype)


class MirrorBERT(Method):
    """NT-Xent of a sentence and its copy with a masked span."""

    arguments = Arguments

    def views(self, args: Arguments) -> list[View]:
        edit = partial(mask_span, length=args.span_tokens) if args.span_tokens else None
        return [View(), View(edit)]

    def build(self, args: Arguments, encoder, projection, source) -> list[Objective]:
        # Both views are anchors, as in the code.
        return [Contrast(partial(nt_xent, temperature=args.temperature))]


CITATION = r"""@misc{liu2021mirrorbert,
  title = {Fast, Effective, and Self-Supervised: Transforming Masked Language Models into Universal
  Lexical and Sentence Encoders},
  author = {Liu, Fangyu and Vuli{\'c}, Ivan and Korhonen, Anna and Collier, Nigel},
  year = {2021}, eprint = {2104.08027}, archivePrefix = {arXiv}}"""
METHOD = MirrorBERT(CITATION, published=("mirror-bert-base",))
