"""Turn keys into a batch. Every discrete random draw of training happens here."""

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import numpy as np
import torch

from common.errors import BadInput
from data import draws
from data.draws import Key
from data.masking import choose_words, corrupt
from data.template import Frame, frame_of, framed
from data.tokenised import WHOLE, TokenisedText
from data.tokenizer import word_starts
from data.views import IGNORED, MASK, Masking, View

# Concatenated ids without special tokens, and the length of each text.
Texts = tuple[np.ndarray, np.ndarray]
# One purpose or P of them -> a key per example of the batch, (B,) or (P, B).
Keyed = Callable[..., np.ndarray]


class Collator:
    """Make a batch of V views of B sentences.

    Args:
        text: the token ids.
        tokenizer: provides the special tokens and, for whole words, the word boundaries.
        views: one entry per view; with rows of several sentences view i shows sentence i.
        max_length: tokens of a sentence, including special tokens and the template; longer
            sentences are truncated before an edit sees them, never the tokens around them.
        seed: seed of all draws.
        masking: which views get a masked twin; several maskings need different names.
        width: width of the embeddings, if a view perturbs them.
        operations: O, the dropout operations of the network, for views that draw one rate per
            operation.
        longest: tokens that an edited sentence may grow to: the model's limit (default:
            max_length).
        words: also return the words of the texts.
        multiple: the number of tokens is a multiple of this, but at most `longest`.

    A call returns torch tensors and a number; all but the first two lines only if requested:
        input_ids, attention_mask: (V, B, L);
        seed: for draws of an objective, the same in all processes;
        for each masking, (number of its views, B, L): NAME_input_ids and NAME_labels;
        dropout_rates: (V, B, O) if a view draws one rate per operation, otherwise (V, B, 1); NaN
            for a view that keeps the backbone's rate;
        positions (V, B, L) and kept (V, B, L, width / 8), of perturbed embeddings;
        target_input_ids, target_attention_mask: the views with a target before their edit, (their
            number, B, L');
        words: each distinct token of a view before its edit, without special tokens, at its first
            occurrence, IGNORED elsewhere, (V, B, L');
        labels: classes of the rows, (1, B).
    """

    def __init__(
        self,
        text: TokenisedText,
        tokenizer,
        views: Sequence[View],
        max_length: int,
        seed: int,
        masking: Sequence[Masking] = (),
        width: int = 0,
        operations: int = 1,
        longest: int | None = None,
        words: bool = False,
        multiple: int = 1,
    ) -> None:
        self.text, self.views, self.seed = text, list(views), seed
        self.masking = tuple(masking)
        self.width, self.words, self.multiple = width, words, multiple
        self.pad, self.mask = tokenizer.pad_token_id, tokenizer.mask_token_id
        self.vocabulary = max(tokenizer.get_vocab().values()) + 1  # ids may have gaps
        self._special = np.isin(np.arange(self.vocabulary), tokenizer.all_special_ids)
        default = frame_of(tokenizer)
        self.frames = [
            default if view.template is None else framed(tokenizer, view.template) for view in views
        ]
        self.added = max(frame.added for frame in self.frames)
        if max_length <= self.added:
            said = f"the {self.added} special tokens, a template's included, leave no room for text"
            raise BadInput(f"--max_length {max_length}: {said}")
        if self.masking and self.mask is None:
            raise BadInput("the method masks tokens, but this tokenizer has no mask token")
        self.room, self.longest = max_length - self.added, longest or max_length
        per_operation = any(v.dropout and v.dropout.per_operation for v in self.views)
        self.operations = operations if per_operation else 1
        needing = [*(view.words for view in self.views), *(m.whole_words for m in self.masking)]
        needs_words = any(needing)
        # Which tokens begin a word; not every tokenizer can say.
        self._starts = word_starts(tokenizer) if needs_words else np.array([], dtype=bool)
        self._unlabelled = {
            some.name: self._stop_words(some.stop_words) for some in self.masking if some.stop_words
        }

    def __call__(self, batch: Sequence[Key]) -> dict[str, Any]:
        epochs, indices, steps = np.array(batch, dtype=np.int64).T
        keyed = partial(draws.keys, self.seed, epochs, indices)
        shown = self._shown(indices, keyed)
        edited = [self._edited(number, *texts, keyed) for number, texts in enumerate(shown)]
        ids, mask, is_text = self._padded(edited, self.frames)
        arrays = {"input_ids": ids, "attention_mask": mask.astype(np.int64)}
        of_step = partial(draws.keys, self.seed, epochs, steps)
        for masking in self.masking:
            arrays |= self._masked(masking, ids, is_text, keyed)
        if any(view.dropout for view in self.views):
            arrays["dropout_rates"] = self._rates(keyed, of_step, len(batch))
        if any(view.perturb for view in self.views):
            arrays |= self._perturbed(mask, keyed)
        if targets := [number for number, view in enumerate(self.views) if view.target]:
            frames = [self.frames[number] for number in targets]
            ids, mask, _ = self._padded([shown[number] for number in targets], frames)
            arrays |= {"target_input_ids": ids, "target_attention_mask": mask.astype(np.int64)}
        if self.words:
            arrays["words"] = self._words(shown)
        if self.text.labels is not None:
            arrays["labels"] = self.text.labels[indices][None]
        made: dict[str, Any] = {name: torch.from_numpy(value) for name, value in arrays.items()}
        made["seed"] = int(of_step("objectives")[0] >> np.uint64(1))
        return made

    def _shown(self, indices: np.ndarray, keyed: Keyed) -> list[Texts]:
        """The texts of each view before its edit: a sentence of the row, or part of a document."""
        columns = range(self.text.columns)
        read = [self.text.sentences(indices, column, self.room) for column in columns]
        shown = [read[number % len(read)] for number in range(len(self.views))]
        for number, view in enumerate(self.views):
            if view.cut is not None:
                whole = [self.text.sentences(indices, column, WHOLE) for column in columns]
                rows = zip(*(_apart(*texts) for texts in whole), strict=True)
                cuts = []
                for row, key in zip(rows, keyed("cut"), strict=True):
                    cuts.append(view.cut(list(row), draws.generator(key))[: self.room])
                shown[number] = _joined(cuts)
        return shown

    def _edited(self, number: int, flat: np.ndarray, lengths: np.ndarray, keyed: Keyed) -> Texts:
        """The texts of a view after its edit, with the tokenizer's id for each MASK."""
        view, longest = self.views[number], self.longest - self.added
        if view.edit is None:
            return flat, lengths
        edits = []
        for ids, key in zip(_apart(flat, lengths), keyed(f"edit {number}"), strict=True):
            starts = self._starts[ids] if view.words else None
            edits.append(view.edit(ids, starts, draws.generator(key))[:longest])
        ids, lengths = _joined(edits)
        hidden = ids == MASK
        if not hidden.any():
            return ids, lengths
        if self.mask is None:
            raise BadInput("the method hides words, but this tokenizer has no mask token")
        return np.where(hidden, self.mask, ids), lengths

    def _padded(
        self, views: Sequence[Texts], frames: Sequence[Frame]
    ) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Padded ids, each text in its view's frame; the mask; where the texts are: (V, B, L)."""
        starts = _column([len(frame.prefix) for frame in frames])
        added = _column([frame.added for frame in frames])
        lengths = np.stack([lengths for _, lengths in views])[..., None]
        longest = (lengths + added).max()
        rounded = -(-longest // self.multiple) * self.multiple
        longest = max(longest, min(rounded, self.longest))
        position = np.arange(longest)
        is_text = (position >= starts) & (position < starts + lengths)
        ids = np.full(is_text.shape, self.pad, dtype=np.int64)
        ids[is_text] = np.concatenate([flat for flat, _ in views])
        for view, ends, (prefix, suffix) in zip(ids, starts + lengths, frames, strict=True):
            view[:, : len(prefix)] = prefix
            view[np.arange(len(view))[:, None], ends + np.arange(len(suffix))] = suffix
        return ids, position < lengths + added, is_text

    def _words(self, shown: Sequence[Texts]) -> np.ndarray:
        """Each distinct token of a text at its first occurrence, IGNORED elsewhere, (V, B, L)."""
        ids, _, is_text = self._padded(shown, self.frames)
        words = np.full_like(ids, IGNORED)
        plain = is_text & ~self._special[ids]
        for row in np.ndindex(ids.shape[:2]):
            positions = np.flatnonzero(plain[row])
            values, first = np.unique(ids[row][positions], return_index=True)
            words[row][positions[first]] = values
        return words

    def _rates(self, keyed: Keyed, of_step: Keyed, count: int) -> np.ndarray:
        """Dropout rates of every view, sentence and operation, (V, B, 1 or O) float32."""
        rates = np.full((len(self.views), count, self.operations), np.nan, dtype=np.float32)
        for number, view in enumerate(self.views):
            if view.dropout is not None:
                keys = (keyed if view.dropout.per_sentence else of_step)(f"dropout {number}")
                drawn = draws.uniforms(keys, self.operations if view.dropout.per_operation else 1)
                rates[number] = view.dropout.quantile(drawn)
        return rates

    def _perturbed(self, mask: np.ndarray, keyed: Keyed) -> dict[str, np.ndarray]:
        """Positions, (V, B, L), and kept entries of embeddings as bits, (V, B, L, width / 8)."""
        positions = np.broadcast_to(np.arange(mask.shape[2]), mask.shape).copy()
        kept = np.full((*mask.shape, -(-self.width // 8)), 255, dtype=np.uint8)
        for number, view in enumerate(self.views):
            if view.perturb is not None:
                pairs = zip(keyed(f"perturb {number}"), mask[number].sum(1), strict=True)
                for row, (key, count) in enumerate(pairs):
                    change = view.perturb(int(count), self.width, draws.generator(key))
                    positions[number, row, :count] = change.positions
                    kept[number, row, :count] = np.packbits(change.kept, axis=-1)
        return {"positions": positions, "kept": kept}

    def _stop_words(self, count: int) -> np.ndarray:
        """The most frequent tokens of the text, (count,); the lower id first among equals."""
        frequencies = self.text.frequencies(self.room, len(self._special)) * ~self._special
        distinct = np.count_nonzero(frequencies)
        if distinct <= count:
            raise BadInput(
                f"--aux_stop_words {count}: the text has only {distinct:,} distinct tokens; give "
                "fewer"
            )
        return np.argsort(-frequencies, kind="stable")[:count]

    def _masked(
        self, masking: Masking, ids: np.ndarray, is_text: np.ndarray, keyed: Keyed
    ) -> dict[str, np.ndarray]:
        views = list(range(len(self.views)) if masking.views is None else masking.views)
        ids, text = ids[views], is_text[views]
        # One stream per purpose, not one stream cut in pieces: the numbers of a sentence must not
        # depend on the longest sentence of its batch.
        purposes = ("mask", "replace")
        stream = "" if masking.name == "masked" else f"{masking.name} "
        keys = keyed([f"{stream}{purpose} {view}" for purpose in purposes for view in views])
        select, replace = draws.uniforms(keys, ids.shape[-1]).reshape(2, *ids.shape)
        if masking.whole_words:
            chosen = choose_words(text, self._special[ids], self._starts[ids], masking.rate, select)
        else:
            chosen = text & ~self._special[ids] & (select < masking.rate)
        masked, labels = corrupt(ids, chosen, masking.scheme, self.mask, self.vocabulary, replace)
        if masking.stop_words:
            labels[np.isin(labels, self._unlabelled[masking.name])] = IGNORED
        return {f"{masking.name}_input_ids": masked, f"{masking.name}_labels": labels}


def _apart(flat: np.ndarray, lengths: np.ndarray) -> list[np.ndarray]:
    return np.split(flat, np.cumsum(lengths)[:-1])


def _joined(texts: list[np.ndarray]) -> Texts:
    return np.concatenate(texts), np.array([len(ids) for ids in texts])


def _column(numbers: list[int]) -> np.ndarray:
    """A number per view, (V, 1, 1)."""
    return np.array(numbers)[:, None, None]
