"""From keys to a batch. Every discrete random draw of training happens here."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch

from common.errors import BadInput
from common.packing import EDGE, Grid, Packing
from common.template import Frame, frame_of, framed
from common.views import IGNORED, MASK, Masking, View
from data import draws
from data.draws import Key
from data.masking import choose_tokens, choose_words, corrupt
from data.tokenised import WHOLE, TokenisedText
from data.tokenizer import SpecialTokens, word_starts

Texts = tuple[np.ndarray, np.ndarray]  # concatenated ids without special tokens, and the number of each text's


class Collator:
    """Make a batch of V views of B sentences.

    Args:
        text: the token ids.
        tokenizer: gives the special tokens and, for whole words, the word boundaries.
        views: one entry a view; with rows of several sentences view i shows sentence i.
        max_length: tokens of a sentence, special ones and those of a template included; longer ones are cut before an
            edit sees them, and what stands around them stays whole.
        seed: of all draws.
        masking: which views get a masked twin; several twins need different names.
        width: of the embeddings, if a view perturbs them.
        operations: O, the dropout operations of the network, for views that draw a rate for each.
        longest: tokens that an edited sentence may grow to: the model's limit (default: max_length).
        words: also return the words of the texts.
        packing: which layouts a model reads, and whether shapes are to be few.

    Returns of a call, as torch tensors:
        input_ids, attention_mask: (V, B, L);
        for each masking, (number of its views, B, L): NAME_input_ids, NAME_labels and, if asked for, NAME_uniforms;
        dropout_rates: only if a view draws its dropout; (V, B, O) if one draws a rate for each operation, otherwise
            (V, B, 1); NaN for a view that keeps the backbone's;
        positions (V, B, L) and kept (V, B, L, width / 8), only if a view perturbs embeddings;
        target_input_ids, target_attention_mask: the views with a target before their edit, (their number, B, L'), only
            if there are such;
        words: only if asked for; each distinct token of a view before its edit where it first occurs, IGNORED
            elsewhere, (V, B, L'), special tokens left out;
        labels: classes of the rows, (1, B), only if the text has them;
        layouts: only with `packing`.
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
        packing: Packing | None = None,
    ) -> None:
        self.text = text
        self.special = SpecialTokens.of(tokenizer)
        self.views = list(views)
        around = frame_of(tokenizer)
        self.frames = [around if view.template is None else framed(tokenizer, view.template) for view in views]
        self.added = max(frame.added for frame in self.frames)
        if max_length <= self.added:
            kind = "special tokens" if all(frame == around for frame in self.frames) else "tokens of the template"
            raise BadInput(f"--max_length {max_length}: the {self.added} {kind} leave no room for text")
        self.max_length, self.longest = max_length, longest or max_length
        self.seed = seed
        self.masking = tuple(masking)
        if self.masking and self.special.mask is None:
            raise BadInput("the method masks tokens, but this tokenizer has no mask token")
        self.width, self.packing = width, packing
        self.operations = operations if any(v.dropout and v.dropout.per_operation for v in self.views) else 1
        self.words = words
        whole = any(view.words for view in self.views) or any(each.whole_words for each in self.masking)
        self._starts = word_starts(tokenizer) if whole else None

    def __call__(self, batch: Sequence[Key]) -> dict[str, torch.Tensor]:
        epochs, indices, steps = np.array(batch, dtype=np.int64).T
        shown = self._shown(epochs, indices)
        edited = [self._edited(number, *each, epochs, indices) for number, each in enumerate(shown)]
        ids, mask = self._padded(edited, self.frames)
        made = {"input_ids": ids, "attention_mask": mask.astype(np.int64)}
        for masking in self.masking:
            made |= self._masked(masking, ids, mask, epochs, indices)
        if any(view.dropout for view in self.views):
            made["dropout_rates"] = self._rates(epochs, indices, steps)
        if any(view.perturb for view in self.views):
            made |= self._perturbed(mask, epochs, indices)
        if any(view.target for view in self.views):
            wanted = [number for number, view in enumerate(self.views) if view.target]
            ids, mask = self._padded([shown[number] for number in wanted], [self.frames[number] for number in wanted])
            made |= {"target_input_ids": ids, "target_attention_mask": mask.astype(np.int64)}
        if self.words:
            made["words"] = self._words(*self._padded(shown, self.frames))
        if self.text.labels is not None:
            made["labels"] = self.text.labels[indices][None]
        tensors = {name: torch.from_numpy(value) for name, value in made.items()}
        return tensors | ({"layouts": self._layouts(made)} if self.packing is not None else {})

    def _layouts(self, made: dict[str, np.ndarray]) -> dict[tuple, Grid]:
        """Where the tokens and labels of a batch are."""
        marked = {masking.name: (masking.views, made[f"{masking.name}_labels"]) for masking in self.masking}
        found = self.packing.layouts(made["attention_mask"] != 0, marked)
        if "target_input_ids" in made:
            found |= self.packing.of_targets(made["target_input_ids"], made["target_attention_mask"] != 0)
        return found

    def _shown(self, epochs: np.ndarray, indices: np.ndarray) -> list[Texts]:
        """What each view shows before its edit."""
        room = self.max_length - self.added
        read = [self.text.sentences(indices, column, room) for column in range(self.text.columns)]
        # Of one column every view shows the same.
        return [read[number % len(read)] if view.cut is None else self._cut(view, epochs, indices)
                for number, view in enumerate(self.views)]  # fmt: skip

    def _cut(self, view: View, epochs: np.ndarray, indices: np.ndarray) -> Texts:
        """The parts of whole documents that a view shows."""
        texts = zip(*(self._documents(indices, column) for column in range(self.text.columns)), strict=True)
        keyed = draws.keys(self.seed, epochs, indices, "cut")
        room = self.max_length - self.added
        cut = [view.cut(list(row), draws.generator(key))[:room] for row, key in zip(texts, keyed, strict=True)]
        return np.concatenate(cut), np.array([len(ids) for ids in cut])

    def _documents(self, indices: np.ndarray, column: int) -> list[np.ndarray]:
        flat, lengths = self.text.sentences(indices, column, WHOLE)
        return np.split(flat, np.cumsum(lengths)[:-1])

    def _edited(
        self, number: int, flat: np.ndarray, lengths: np.ndarray, epochs: np.ndarray, indices: np.ndarray
    ) -> Texts:
        """What a view's edit makes of its texts."""
        view, longest = self.views[number], self.longest - self.added
        if view.edit is None:
            return flat, lengths
        keyed = draws.keys(self.seed, epochs, indices, f"edit {number}")
        pairs = zip(np.split(flat, np.cumsum(lengths)[:-1]), keyed, strict=True)
        edited = [view.edit(ids, self._starts[ids] if view.words else None, draws.generator(key))[:longest]
                  for ids, key in pairs]  # fmt: skip
        return self._with_mask_tokens(np.concatenate(edited)), np.array([len(ids) for ids in edited])

    def _with_mask_tokens(self, ids: np.ndarray) -> np.ndarray:
        """Replace MASK, which an edit wrote, by the tokenizer's id; BadInput for a tokenizer without a mask token."""
        hidden = ids == MASK
        if self.special.mask is None and hidden.any():
            raise BadInput("the method masks a part of a view, but this tokenizer has no mask token")
        return np.where(hidden, self.special.mask, ids) if hidden.any() else ids

    def _padded(self, views: Sequence[Texts], frames: Sequence[Frame]) -> tuple[np.ndarray, np.ndarray]:
        """Padded ids with what stands around each view's texts, (V, B, L), and the attention mask."""
        longest = max(lengths.max() + frame.added for (_, lengths), frame in zip(views, frames, strict=True))
        if self.packing and self.packing.static:
            longest = max(longest, min(-(-longest // EDGE) * EDGE, self.longest))
        position = np.arange(longest)
        ids = np.full((len(views), len(views[0][1]), len(position)), self.special.pad, dtype=np.int64)
        for view, (flat, lengths), (prefix, suffix) in zip(ids, views, frames, strict=True):
            start = len(prefix)
            view[(position >= start) & (position < start + lengths[:, None])] = flat
            view[:, :start] = prefix
            for offset, token in enumerate(suffix):
                view[np.arange(len(lengths)), start + lengths + offset] = token
        ends = [lengths[:, None] + frame.added for (_, lengths), frame in zip(views, frames, strict=True)]
        return ids, position < np.stack(ends)

    def _words(self, ids: np.ndarray, mask: np.ndarray) -> np.ndarray:
        """Each distinct token of a text where it first occurs, IGNORED elsewhere, (V, B, L)."""
        found = np.full_like(ids, IGNORED)
        text = np.stack([self.is_text(mask[number], frame) for number, frame in enumerate(self.frames)])
        known = text & ~np.isin(ids, self.special.ids)
        for place in np.ndindex(ids.shape[:2]):
            positions = np.flatnonzero(known[place])
            values, first = np.unique(ids[place][positions], return_index=True)
            found[place][positions[first]] = values
        return found

    def _rates(self, epochs: np.ndarray, indices: np.ndarray, steps: np.ndarray) -> np.ndarray:
        """Dropout rates of every view, sentence and operation, (V, B, 1 or O) float32."""
        made = np.full((len(self.views), len(indices), self.operations), np.nan, dtype=np.float32)
        for number, view in enumerate(self.views):
            if view.dropout is not None:
                counted = indices if view.dropout.per_sentence else steps
                keyed = draws.keys(self.seed, epochs, counted, f"dropout {number}")
                drawn = draws.uniforms(keyed, self.operations if view.dropout.per_operation else 1)
                made[number] = view.dropout.quantile(drawn)
        return made

    def _perturbed(self, mask: np.ndarray, epochs: np.ndarray, indices: np.ndarray) -> dict[str, np.ndarray]:
        """Positions (V, B, L) and kept entries of the embeddings, eight to a byte, (V, B, L, width / 8)."""
        positions = np.broadcast_to(np.arange(mask.shape[2]), mask.shape).copy()
        kept = np.full((*mask.shape, -(-self.width // 8)), 255, dtype=np.uint8)
        for number, view in enumerate(self.views):
            if view.perturb is not None:
                keyed = draws.keys(self.seed, epochs, indices, f"perturb {number}")
                for row, (key, count) in enumerate(zip(keyed, mask[number].sum(1), strict=True)):
                    found = view.perturb(int(count), self.width, draws.generator(key))
                    positions[number, row, :count] = found.positions
                    kept[number, row, :count] = np.packbits(found.kept, axis=-1)
        return {"positions": positions, "kept": kept}

    def _masked(
        self, masking: Masking, ids: np.ndarray, mask: np.ndarray, epochs: np.ndarray, indices: np.ndarray
    ) -> dict[str, np.ndarray]:
        made, numbers = [], []
        stream = "" if masking.name == "masked" else f"{masking.name} "
        for view in masking.views:
            # One stream for each purpose, not one cut in pieces: the numbers of a sentence must not depend on the
            # longest sentence of its batch.
            purposes = ("mask", "replace", "uniform") if masking.uniforms else ("mask", "replace")
            streams = [f"{stream}{purpose} {view}" for purpose in purposes]
            keyed = draws.keys(self.seed, epochs, indices, streams)
            select, replace, *free = draws.uniforms(keyed, ids.shape[-1])
            numbers += [np.minimum(drawn, 1 - 2**-24).astype(np.float32) for drawn in free]  # rounded, but not to 1
            text, special = self.is_text(mask[view], self.frames[view]), np.isin(ids[view], self.special.ids)
            if masking.whole_words:
                chosen = choose_words(text, special, self._starts[ids[view]], masking.rate, select)
            else:
                chosen = choose_tokens(text & ~special, masking.rate, select)
            made.append(corrupt(ids[view], chosen, masking.recipe, self.special.mask, self.special.vocabulary, replace))
        masked, labels = zip(*made, strict=True)
        found = {f"{masking.name}_input_ids": np.stack(masked), f"{masking.name}_labels": np.stack(labels)}
        return found | ({f"{masking.name}_uniforms": np.stack(numbers)} if masking.uniforms else {})

    def is_text(self, mask: np.ndarray, frame: Frame) -> np.ndarray:
        """Whether a token is neither padding nor of the frame around it: (..., L) attention mask -> (..., L) bool."""
        position = np.arange(mask.shape[-1])
        end = mask.sum(-1, keepdims=True) - len(frame.suffix)
        return (position >= len(frame.prefix)) & (position < end)


class MaskedCollator:
    """Batches of masked language models: input_ids, attention_mask, labels, each (B, L).

    Args:
        text, tokenizer, max_length, seed, masking: as for `Collator`; one masked view.
        aux_masking: also draw `aux_input_ids` and `aux_labels`, the auxiliary head's own masks.
        clean: also return `clean_input_ids`, the text without masks.
        words: also return `words`: each distinct token of a text where it first occurs, IGNORED elsewhere.
    """

    def __init__(
        self, text: TokenisedText, tokenizer, max_length: int, seed: int, masking: Masking,
        aux_masking: Masking | None = None, clean: bool = False, words: bool = False, packing: Packing | None = None,
    ) -> None:  # fmt: skip
        self._names = {"masked_input_ids": "input_ids", "attention_mask": "attention_mask", "masked_labels": "labels"}
        self._names |= {f"aux_{part}": f"aux_{part}" for part in ("input_ids", "labels") if aux_masking}
        self._names |= {"input_ids": "clean_input_ids"} if clean else {}
        self._names |= {"words": "words"} if words else {}
        maskings = [masking, *filter(None, [aux_masking])]
        self._collate = Collator(text, tokenizer, [View()], max_length, seed, maskings, words=words, packing=packing)

    def __call__(self, batch: Sequence[Key]) -> dict[str, torch.Tensor]:
        made = self._collate(batch)
        found = {name: made[source][0] for source, name in self._names.items()}
        return found | ({"layouts": made["layouts"]} if "layouts" in made else {})
