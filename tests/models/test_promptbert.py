"""PromptBERT against a loop over the sentences, with the library's own model."""

import pytest
import torch
from transformers import AutoModel

from common.errors import BadInput
from data.template import frame_of, framed, mask_place, templated
from models.encoder import SentenceEncoder
from models.loading import load_backbone, load_tokenizer
from models.objectives.base import Checkpoint
from models.objectives.promptbert import METHOD, Arguments
from tests.methods import build_model
from tests.models.test_contrast import slow_info_nce

ARGS = {"template": 'The dog of "{text}" watches {mask}.', "temperature": 0.1}
ARGS |= {"template_2": "this {text} watches {mask}."}
TEXTS = ["a tired child", "another wooden river slowly", "the gardener"]


def batch_of(tokenizer, templates):
    rows = []
    for before, after in (framed(tokenizer, template) for template in templates):
        for text in TEXTS:
            rows.append(before + tokenizer(text, add_special_tokens=False)["input_ids"] + after)
    length = max(map(len, rows)) + 2
    made = tokenizer.pad({"input_ids": rows}, "max_length", length, return_tensors="pt")
    return {name: value.unflatten(0, (len(templates), -1)) for name, value in made.items()}


def state_at_mask(model, tokenizer, ids, positions):
    first = 0 if model.config.model_type == "bert" else model.config.pad_token_id + 1
    output = model(torch.tensor([ids]), position_ids=torch.tensor([positions]) + first)
    return output.last_hidden_state[0, ids.index(tokenizer.mask_token_id)]


def expected_loss(folder, head):
    """The paper's formula, a sentence at a time."""
    model, tokenizer = AutoModel.from_pretrained(folder).eval(), load_tokenizer(folder)
    views = []
    for template in (ARGS["template"], ARGS["template_2"]):
        before, after = framed(tokenizer, template)
        vectors = []
        for text in TEXTS:
            ids = tokenizer(text, add_special_tokens=False)["input_ids"]
            whole = [*before, *ids, *after]
            vector = state_at_mask(model, tokenizer, whole, [*range(len(whole))])
            positions = [*range(len(before)), *range(len(before) + len(ids), len(whole))]
            vector = vector - state_at_mask(model, tokenizer, before + after, positions)
            vectors.append(torch.tanh(head.linear.weight @ vector + head.linear.bias))
        views.append(vectors)
    return slow_info_nce(*map(torch.stack, views), ARGS["temperature"])


@pytest.mark.parametrize("packed", [False, True])
def test_loss_and_gradients_are_those_of_the_formula(folder, packed):
    model = build_model("promptbert", folder, packed, pooling="mask", **ARGS)
    batch = batch_of(load_tokenizer(folder), (ARGS["template"], ARGS["template_2"]))
    assert len(set(batch["attention_mask"].sum(2).flatten().tolist())) > 3
    loss = model(**batch).loss
    expected = expected_loss(folder, model.projection)
    assert loss.item() == pytest.approx(expected, rel=1e-4)
    loss.backward()
    table = model.encoder.backbone.embeddings.position_embeddings.weight
    gradient = table.grad.clone()
    # The templates around nothing learn too: a finite difference along the gradient.
    with torch.no_grad():
        step = 1e-3 * gradient / gradient.norm()
        table += step
        above = model(**batch).loss
        table -= 2 * step
        slope = (above - model(**batch).loss) / 2e-3
    assert slope.item() == pytest.approx(gradient.norm().item(), rel=2e-2)


def test_the_template_stays_whole_around_any_text(folder):
    plain = load_tokenizer(folder)
    made = templated(plain, ARGS["template"])
    before, after = framed(plain, ARGS["template"])
    assert frame_of(made) == (before, after) == framed(made, ARGS["template"])
    assert (before[0], after[-1], mask_place(made)) == (plain.cls_token_id, plain.sep_token_id, -3)
    assert framed(made, ARGS["template_2"]) == framed(plain, ARGS["template_2"])
    room = len(before) + len(after) + 3
    special = f"{plain.mask_token} {plain.sep_token}"
    for text in ("the dog " * 30, special, "", plain.mask_token * 40):
        ids = made(text, truncation=True, max_length=room)["input_ids"]
        assert (ids[: len(before)], ids[-len(after) :]) == (before, after)
        assert len(ids) <= room and ids.count(plain.mask_token_id) == 1


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        ({"template": "no {mask}"}, "'no {mask}' must contain {text} once"),
        ({"template": "{text} {mask} {mask}"}, "and {mask} at most once"),
        ({"template": "a {text}"}, "pooling mask reads the mask of a template"),
        ({"template_2": "{text} {mask}"}, "--template_2: {mask} must have as many tokens"),
    ],
)
def test_templates_that_cannot_be_pooled_are_refused(folder, flags, message):
    args = Arguments(**ARGS | flags)
    with pytest.raises(BadInput, match=message):
        tokenizer = METHOD.tokenizer(args, load_tokenizer(folder))
        place = mask_place(tokenizer)
        encoder = SentenceEncoder(load_backbone(folder), "mask", place=place)
        METHOD.build(args, encoder, None, Checkpoint(folder, None))
