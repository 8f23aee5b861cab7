"""Independent cropping: two crops of a document are each other's positive (2112.09118, 3.1).

Source: Contriever (Izacard et al. 2021).

For search in your own documents: views that share a topic but few words. Different from the paper:
negatives come from the batch, not from a queue, as in arXiv 2508.03453 (crops against dropout);
scores are cosines, where Contriever's code has dot products.

    python run_unsup.py --config configs/cropping-bert-base.yaml
"""

from dataclasses import dataclass
from functools import partial

import numpy as np
from torch import Tensor

from common.ranges import Positive, Rate, Share, flag
from data.views import View
from models.contrast import info_nce
from models.objectives.base import Contrast, Method, MethodArguments, Objective

LEAST = 4  # tokens of a crop, if the document has as many


@dataclass
class Arguments(MethodArguments):
    """Options of the crops; defaults are those of Contriever's example script."""

    temperature: Positive = flag(
        0.05, "tau: cosines are divided by it (script, which divides dot products)"
    )
    crop_least: Share = flag(0.05, "smallest share of a document's tokens in a crop (script)")
    crop_most: Share = flag(0.5, "largest share; also truncated at max_length (script)")
    delete_rate: Rate = flag(0.1, "share of a crop's tokens to delete (script)")


def draw_crops(
    length: int, args: Arguments, generator: np.random.Generator
) -> list[tuple[int, int]]:
    """Draw start and end of two independent crops of a document of `length` tokens.

    Lengths are uniform between the smallest and the largest share.
    """
    low = min(max(int(length * args.crop_least), LEAST), length)
    high = min(max(int(length * args.crop_most), low), length)
    sizes = generator.integers(low, high, size=2, endpoint=True)
    starts = generator.integers(0, length - sizes, endpoint=True)
    return [(int(start), int(start + size)) for start, size in zip(starts, sizes, strict=True)]


def show(
    texts: list[np.ndarray], generator: np.random.Generator, args: Arguments, view: int
) -> np.ndarray:
    """Return the part of a document that one view shows."""
    [document] = texts
    start, end = draw_crops(len(document), args, generator)[view]
    return document[start:end]


def delete(
    ids: np.ndarray, starts: np.ndarray | None, generator: np.random.Generator, rate: float
) -> np.ndarray:
    """Delete a share `rate` of the words, of the tokens if `starts` is None; one is kept."""
    word = np.arange(len(ids)) if starts is None else np.cumsum(starts) - starts[:1].sum()
    drawn = generator.random(len(ids))[word]
    return ids[drawn >= min(rate, drawn.max(initial=0.0))]


def two_way_nce(first: Tensor, second: Tensor, temperature: float) -> Tensor:
    """The mean of InfoNCE in both directions; the batch's other documents are negatives."""
    return (info_nce(first, second, temperature) + info_nce(second, first, temperature)) / 2


class Cropping(Method):
    """InfoNCE of two crops of a document."""

    arguments = Arguments
    one_text = True

    def views(self, args: Arguments) -> list[View]:
        edit = partial(delete, rate=args.delete_rate) if args.delete_rate else None
        return [View(edit, cut=partial(show, args=args, view=number)) for number in range(2)]

    def build(self, args: Arguments, encoder, projection, source) -> list[Objective]:
        return [Contrast(partial(two_way_nce, temperature=args.temperature))]


CITATION = """@misc{izacard2021contriever,
  title = {Unsupervised Dense Information Retrieval with Contrastive Learning},
  author = {Izacard, Gautier and Caron, Mathilde and Hosseini, Lucas and Riedel, Sebastian and
  Bojanowski, Piotr and Joulin, Armand and Grave, Edouard},
  year = {2021}, eprint = {2112.09118}, archivePrefix = {arXiv}}"""
METHOD = Cropping(CITATION)
