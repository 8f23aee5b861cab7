"""Which tokens are masked, and what replaces them: pure functions of uniform numbers.

Sources: Devlin et al. 2018, section 3.1 (80/10/10); InfoCSE's official code masks tokens
independently, anew in every batch; Condenser's pre-training masks whole words, a fixed number of
tokens per block. (Its RoBERTa variant uses BERT's word boundaries by mistake; here each family has
its own.)
"""

import numpy as np

from data.views import IGNORED


def choose_words(
    text: np.ndarray, special: np.ndarray, starts: np.ndarray, rate: float, uniform: np.ndarray
) -> np.ndarray:
    """Choose whole words in random order, up to `rate` of a row's tokens: (..., L) -> (..., L).

    As in Condenser's data collator, max(1, round(rate n)) of n text tokens are chosen. A word that
    would exceed that number is skipped. So is a special token in the text, such as the unknown
    token, though it counts among the n. Unlike there, if every word is longer, the beginning of the
    first one is chosen: otherwise nothing would be trained on such a text.

    `text` excludes padding and tokens that the tokenizer adds; `starts` marks the first token of a
    word; all are (..., L) bool. The uniform number of a word's first token, (..., L), ranks the
    word.
    """
    chosen = np.zeros_like(text)
    for row in zip(*np.nonzero(text.any(-1)), strict=True):
        positions = np.flatnonzero(text[row])
        alone = special[row][positions]  # a word of its own
        heads = starts[row][positions] | alone
        heads[1:] |= alone[:-1]
        heads[0] = True
        begins = np.flatnonzero(heads)
        budget = max(1, round(rate * len(positions)))
        order = np.argsort(uniform[row][positions[begins]], kind="stable")
        order = order[~alone[begins[order]]]
        sizes = np.diff(begins, append=len(positions))[order].tolist()
        ranked = begins[order].tolist()
        masked = np.zeros_like(alone)
        for begin, size in zip(ranked, sizes, strict=True):
            if size <= budget:
                masked[begin : begin + size] = True
                budget -= size
            if budget == 0:
                break
        if ranked and not masked.any():
            masked[ranked[0] : ranked[0] + budget] = True
        chosen[row][positions] = masked
    return chosen


def corrupt(
    ids: np.ndarray,
    chosen: np.ndarray,
    scheme: str,
    mask_id: int,
    vocabulary: int,
    uniform: np.ndarray,
) -> tuple[np.ndarray, np.ndarray]:
    """Return masked ids and labels, (..., L) each; a label is the original id, or IGNORED.

    The scheme `mask` masks all chosen tokens. `bert` masks those with a uniform number below 0.8,
    replaces those from 0.8 to 0.9 by a random id below `vocabulary` (the remainder picks it), and
    keeps the others.
    """
    masked, labels = ids.copy(), np.where(chosen, ids, IGNORED)
    if scheme == "mask":
        masked[chosen] = mask_id
        return masked, labels
    masked[chosen & (uniform < 0.8)] = mask_id
    swap = chosen & (uniform >= 0.8) & (uniform < 0.9)
    masked[swap] = ((uniform[swap] - 0.8) * 10 * vocabulary).astype(ids.dtype) % vocabulary
    return masked, labels
