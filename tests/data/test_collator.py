from collections import Counter
from dataclasses import replace

import numpy as np
import pytest
import torch
from torch.utils.data import DataLoader

from data import draws
from data.collator import Collator
from data.draws import KeyedSampler, Keys
from data.source import Source
from data.tokenised import load_tokenised
from data.views import IGNORED, MASK, Masking, Perturbed, Rates, View
from tests.refusals import refused

TWO = (View(), View())
BOTH = Masking(0.3, views=(0, 1))


@pytest.fixture
def text(tokenizer, text_file, tmp_path):
    return load_tokenised(Source((text_file,)), tokenizer, tmp_path)


def collator(text, tokenizer, views=TWO, max_length=32, seed=42, masking=None):
    return Collator(text, tokenizer, views, max_length, seed, [masking] if masking else [])


def batch_of(*indices, epoch=0):
    return [(epoch, index, 0) for index in indices]


def equal(first, second):
    same = [np.array_equal(value, second[name]) for name, value in first.items()]
    return first.keys() == second.keys() and all(same)


def hide_one_repeat_some(ids, starts, rng):
    return np.append(MASK, np.repeat(ids[1:], 1 + (rng.random(len(ids) - 1) < 0.3)))


@pytest.mark.parametrize("max_length", [3, 12, 32, 64])
def test_ids_are_those_of_the_tokenizer(text, tokenizer, sentences, max_length):
    indices = [5, 0, 299, 17, 17, 100]
    made = collator(text, tokenizer, max_length=max_length)(batch_of(*indices))
    tokenizer_flags = {"truncation": True, "max_length": max_length, "padding": True}
    texts = [sentences[i] for i in indices]
    expected = tokenizer(texts, return_tensors="pt", **tokenizer_flags)
    assert made.keys() == {"input_ids", "attention_mask", "seed"}
    for name in ("input_ids", "attention_mask"):
        assert made[name].dtype == torch.int64
        assert all(torch.equal(view, expected[name]) for view in made[name]), name


@pytest.mark.parametrize("length", [-1, 2])
def test_a_length_without_room_for_text_is_refused(text, tokenizer, length):
    refused(collator, text, tokenizer, max_length=length, match=f"max_length {length}:")


@pytest.mark.parametrize("views", [(0,), (1,), (0, 1), (2, 0)])
def test_the_masked_views_are_those_asked_for(text, tokenizer, views):
    three = [View(), View(lambda ids, starts, rng: ids[::-1]), View(hide_one_repeat_some)]
    masking = Masking(0.5, scheme="mask", views=views)
    made = collator(text, tokenizer, three, masking=masking)(batch_of(1, 2, 3, 4))
    length = made["input_ids"].shape[2]
    assert made["input_ids"].shape == made["attention_mask"].shape == (3, 4, length)
    assert made["masked_input_ids"].shape == made["masked_labels"].shape == (len(views), 4, length)
    masked = zip(made["masked_input_ids"], made["masked_labels"], views, strict=True)
    for ids, labels, view in masked:
        chosen = labels != IGNORED
        assert chosen.any()
        assert torch.equal(torch.where(chosen, labels, ids), made["input_ids"][view])
        assert (ids[chosen] == tokenizer.mask_token_id).all()


@pytest.mark.parametrize("whole_words", [False, True])
def test_special_tokens_even_in_the_text_and_padding_are_unmasked(tokenizer, tmp_path, whole_words):
    """As in the official collators, which ask the tokenizer; the unknown word is special too."""
    line = f"The \U0001f9ff dog {tokenizer.unk_token} sat{tokenizer.sep_token}down twice"
    (tmp_path / "text.txt").write_text(f"{line}\n{line} today\n" * 32, encoding="utf-8")
    texts = load_tokenised(Source((tmp_path / "text.txt",)), tokenizer, tmp_path)
    masking = Masking(1.0, scheme="mask", whole_words=whole_words)
    made = collator(texts, tokenizer, masking=masking)(batch_of(*range(64)))
    [labels], special_of = made["masked_labels"], tokenizer.get_special_tokens_mask
    rows = made["input_ids"][0].tolist()
    special = torch.tensor([special_of(row, already_has_special_tokens=True) for row in rows])
    assert torch.equal(labels == IGNORED, special.bool())
    assert special.sum(1).min() >= 4  # two of them in the text
    assert 0 < (made["attention_mask"] == 0).sum() < 64 * 4


def test_whole_words_are_masked_in_all_their_pieces(text, tokenizer):
    masking = Masking(0.4, whole_words=True)
    made = collator(text, tokenizer, max_length=64, masking=masking)(batch_of(*range(100)))
    whole = 0
    for row in range(100):
        chosen = (made["masked_labels"][0, row] != IGNORED).tolist()
        tokens = tokenizer.convert_ids_to_tokens(made["input_ids"][0, row])
        end = int(made["attention_mask"][0, row].sum()) - 1
        for index in range(2, end):
            token = tokens[index]
            if token.startswith("##") if tokens[0] == "[CLS]" else not token.startswith("Ġ"):
                assert chosen[index] == chosen[index - 1]
                whole += chosen[index]
    assert whole > 50


def masked_rows(made):
    """For each sentence of a batch its ids and labels in every masked view, without padding."""
    rows = []
    for row in range(made["input_ids"].shape[1]):
        real = made["attention_mask"][0, row].bool()
        names = ("input_ids", "masked_input_ids", "masked_labels")
        rows.append([made[name][:, row, real].tolist() for name in names])
    return rows


@pytest.mark.parametrize("whole_words", [False, True])
def test_a_sentence_s_batch_does_not_depend_on_its_neighbours(text, tokenizer, whole_words):
    masking = Masking(0.3, whole_words=whole_words, views=(0, 1))
    collate = collator(text, tokenizer, max_length=64, masking=masking)
    lengths = text.lengths(np.arange(len(text)), 0)
    order = np.argsort(lengths, kind="stable").tolist()
    shortest, longest = order[0], order[-1]
    alone = masked_rows(collate(batch_of(shortest)))[0]
    padded = collate(batch_of(longest, shortest, order[150]))
    assert padded["input_ids"].shape[2] > len(alone[0][0]) + 10
    assert masked_rows(padded)[1] == alone
    together = masked_rows(collate(batch_of(*range(30))))
    assert together == [masked_rows(collate(batch_of(i)))[0] for i in range(30)]
    assert together[::-1] == masked_rows(collate(batch_of(*range(29, -1, -1))))


def test_batches_do_not_depend_on_the_workers(bert_tokenizer, text_file, tmp_path):
    text = load_tokenised(Source((text_file,)), bert_tokenizer, tmp_path)
    views = [View(), View(hide_one_repeat_some)]
    collate = collator(text, bert_tokenizer, views, masking=BOTH)
    loaded = []
    for workers in (0, 1, 2):
        sampler = KeyedSampler(42, len(text), 8)
        sampler.set_epoch(1)
        how = {"sampler": sampler, "collate_fn": collate, "num_workers": workers}
        loaded.append(list(DataLoader(Keys(300), 64, **how)))
    assert len(loaded[0]) == 5
    for other in loaded[1:]:
        assert all(equal(*batches) for batches in zip(loaded[0], other, strict=True))


def test_epochs_seeds_and_views_have_masks_of_their_own(text, tokenizer):
    masks = set()
    for seed in (1, 2):
        collate = collator(text, tokenizer, seed=seed, masking=BOTH)
        for epoch in (-1, 0, 1):
            for view in collate(batch_of(*range(64), epoch=epoch))["masked_labels"]:
                masks.add((view != IGNORED).numpy().tobytes())
    assert len(masks) == 2 * 3 * 2


@pytest.mark.parametrize("whole_words", [False, True])
def test_stop_words_are_masked_like_others_without_a_label(text, tokenizer, sentences, whole_words):
    ids = tokenizer(sentences, add_special_tokens=False)["input_ids"]
    seen = Counter(token for sentence in ids for token in sentence[:30])
    del seen[tokenizer.unk_token_id]
    expected = sorted(seen, key=lambda token: (-seen[token], token))[:7]
    plain = Masking(0.5, views=(0, 1), whole_words=whole_words)
    maskings = plain, replace(plain, stop_words=7)
    plain, spared = (collator(text, tokenizer, masking=m)(batch_of(*range(40))) for m in maskings)
    assert torch.equal(plain["masked_input_ids"], spared["masked_input_ids"])
    labels = plain["masked_labels"]
    frequent = torch.isin(labels, torch.tensor(expected))
    assert 0 < frequent.sum() < (labels != IGNORED).sum()
    assert torch.equal(spared["masked_labels"], labels.masked_fill(frequent, IGNORED))


def test_which_tokens_are_masked_is_independent_of_what_replaces_them(text, tokenizer):
    """Were the second draw the first one's number, only low numbers would be masked: no swaps."""
    made = collator(text, tokenizer, masking=Masking(0.3))(batch_of(*range(300)))
    chosen = made["masked_labels"][0] != IGNORED
    is_mask = made["masked_input_ids"][0][chosen] == tokenizer.mask_token_id
    noise = 5 * np.sqrt(0.8 * 0.2 / len(is_mask)) + 0.1 / len(tokenizer)
    assert abs(is_mask.float().mean().item() - 0.8) < noise


def test_an_edit_is_drawn_anew_each_epoch_from_the_sentence_s_own_key(text, tokenizer):
    """Where the edit has a mask stands the tokenizer's."""
    views = [View(), View(hide_one_repeat_some)]
    collate = collator(text, tokenizer, views, max_length=64, seed=5)
    seen = []
    for epoch in range(4):
        made = collate(batch_of(6, 7, epoch=epoch))
        real = made["attention_mask"][1, 1].bool()
        ids, _ = text.sentences([7], 0, 62)
        key = draws.keys(5, np.array([epoch]), np.array([7]), "edit 1")[0]
        expected = hide_one_repeat_some(ids, None, draws.generator(key))[:62].tolist()
        assert expected[0] == MASK
        expected[0] = tokenizer.mask_token_id
        assert made["input_ids"][1, 1][real].tolist()[1:-1] == expected
        seen.append(tuple(expected))
    assert len(set(seen)) == 4
    collate.mask = None
    refused(collate, batch_of(6, 7, epoch=0), match="this tokenizer has no mask token")


def test_an_edited_view_may_grow_up_to_the_model_s_limit(text, tokenizer):
    views = [View(), View(lambda ids, starts, rng: np.append(ids, ids[:5]))]

    def lengths(longest):
        collate = Collator(text, tokenizer, views, 12, 0, longest=longest)
        return collate(batch_of(*range(40)))["attention_mask"].sum(2)

    plain, edited = lengths(512)
    assert (edited == plain + (plain - 2).clamp(max=5)).all() and plain.max() == 12
    assert torch.equal(lengths(14)[1], edited.clamp(max=14))


def test_twins_of_two_names_are_drawn_apart(text, tokenizer):
    both = [Masking(0.4, views=(0, 1)), Masking(0.3, views=(0, 1), name="rtd")]
    made = Collator(text, tokenizer, TWO, 32, 42, both)(batch_of(*range(60)))
    alone = collator(text, tokenizer, masking=both[0])(batch_of(*range(60)))
    for name, value in alone.items():
        assert np.array_equal(made[name], value), "a second twin must not change the first"
    assert set(made) - set(alone) == {"rtd_input_ids", "rtd_labels"}
    maskable = made["attention_mask"].sum() - 2 * 2 * 60
    assert (made["rtd_labels"] != IGNORED).sum() / maskable == pytest.approx(0.3, abs=0.04)
    assert (made["rtd_labels"] != made["masked_labels"]).any()


@pytest.mark.parametrize("operations", [1, 7])
def test_dropout_rates_are_of_the_sentence_or_of_the_step(text, tokenizer, operations):
    def rates(per_sentence, keys):
        drawn = Rates(lambda u: 0.1 + 0.2 * u, per_sentence, per_operation=operations > 1)
        views = [View(), View(dropout=drawn), View(dropout=drawn)]
        made = Collator(text, tokenizer, views, 32, 42, operations=7)(keys)["dropout_rates"]
        assert made.shape == (3, len(keys), operations) and made.dtype == torch.float32
        assert made[0].isnan().all()
        return made[1:]

    drawn = rates(True, batch_of(*range(50)))
    assert 0.1 <= drawn.min() and drawn.max() < 0.3 and len(drawn.unique()) == 2 * 50 * operations
    assert torch.equal(rates(True, batch_of(9, 3)), drawn[:, [9, 3]]), "whatever the batch"
    steps = [rates(False, [(0, i, step) for i in range(4)]) for step in range(20)]
    for step in steps:
        assert (step == step[:, :1]).all() and len(step.unique()) == 2 * operations
    assert len({float(step[0, 0, 0]) for step in steps}) == 20
    assert torch.equal(rates(False, [(0, 7, 3), (0, 8, 3)]), steps[3][:, :2]), "in every process"


def stretch(count, width, rng):
    kept = np.ones((count, width), dtype=bool)
    kept[rng.integers(count)] = False
    return Perturbed(rng.permutation(count), kept)


def test_a_perturbation_is_drawn_for_real_tokens_from_the_sentence_s_own_key(text, tokenizer):
    def made(*indices, epoch=0):
        collate = Collator(text, tokenizer, [View(), View(perturb=stretch)], 32, 42, width=6)
        return collate(batch_of(*indices, epoch=epoch))

    batch = made(*range(30))
    length, bits = batch["input_ids"].shape[2], batch["kept"].numpy()
    counts = batch["attention_mask"][1].sum(1)
    assert batch["positions"].shape == (2, 30, length) and bits.shape == (2, 30, length, 1)
    kept = torch.from_numpy(np.unpackbits(bits, axis=-1, count=6)).bool()
    assert kept[0].all() and (batch["positions"][0] == torch.arange(length)).all()
    perturbed = zip(batch["positions"][1], kept[1].all(-1), counts.tolist(), strict=True)
    for positions, rows, count in perturbed:
        assert sorted(positions[:count].tolist()) == list(range(count))
        assert positions[count:].tolist() == list(range(count, length))
        assert (~rows[:count]).sum() == 1 and rows[count:].all()
    again = made(7, 3)["positions"][1]
    for moved, index in zip(again, (7, 3), strict=True):
        count = int(counts[index])
        assert torch.equal(moved[:count], batch["positions"][1, index, :count])
    assert not torch.equal(made(*range(30), epoch=1)["positions"], batch["positions"])
    assert "kept" not in collator(text, tokenizer)(batch_of(1))


def test_all_processes_of_a_step_get_the_same_seed_and_other_steps_another(text, tokenizer):
    def made(seed, *keys):
        return collator(text, tokenizer, seed=seed)(keys)["seed"]

    first = made(1, (0, 3, 7), (0, 5, 7))
    others = made(1, (0, 3, 8)), made(1, (1, 3, 7)), made(2, (0, 3, 7))
    assert made(1, (0, 9, 7)) == first and len({first, *others}) == 4
