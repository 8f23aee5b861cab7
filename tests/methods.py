"""Every method of models/objectives on a tiny model, for the tests that hold for all of them. A new
method is picked up by its file. `SMALL` gives flags values that suit the tiny models and let every
term of a loss show; a method gets those that it has."""

from dataclasses import fields

import numpy as np
import torch
from pytest import approx

from data.template import mask_place
from models.auxiliary import TiedHead, load_masked_lm, new_head
from models.bag_of_words import BagOfWords
from models.encoder import SentenceEncoder
from models.heads import projection_named
from models.loading import load_backbone, load_config, load_tokenizer, set_dropout
from models.masked_lm import AuxiliaryMaskedLM
from models.objectives.base import Batch, Checkpoint
from models.training import EncoderForTraining
from training.methods import load_method, method_names

# Beside those of `tiny_bert` and `tiny_roberta`; the fixture `tiny` has a model of each.
OTHER_FAMILIES = "xlm-roberta camembert electra distilbert mpnet modernbert deberta-v2".split()
SMALL = dict.fromkeys(("contrastive_weight", "aux_weight", "mlm_weight", "rtd_weight"), 1.0)
SMALL |= {"temperature": 0.1, "momentum": 0.5, "aux_init": "random", "skip_from": 2}
SMALL |= {"queue_size": 11, "bank_size": 30, "negatives": 2}
SMALL |= {"teacher_pooling": "avg", "complement_pooling": "avg"}
SMALL |= {"template": "{text}{mask}", "template_2": "{text} {mask}"}  # few tokens, as the texts
EXTRA = {  # name of the case: method, flags
    "infocse, weights of the paper": ("infocse", {"aux_weight": 1e-5}),
    "infocse, first view": ("infocse", {"aux_views": "first"}),
    "infocse, auxiliary only": ("infocse", {"contrastive_weight": 0.0}),
    "infocse, no detach": ("infocse", {"aux_detach": False}),
    "rankcse, listnet": ("rankcse", {"rank_loss": "listnet"}),
    "dclr, itself": ("dclr", {"complement": "self", "complement_pooling": None}),
    "nli, adversarial": ("nli", {"view_2": "adversarial", "features": "code"}),
}
WORDS = {"tsdae, words": "tsdae"}  # with a bag of words: name of the case, method
EXTRA |= {case: (method, {}) for case, method in WORDS.items()}
CASES = {name: (name, {}) for name in method_names()} | EXTRA
CLS = "cls_before_pooler"


def arguments(case: str, folder: str, **options):
    """The method of a case, and its arguments; `options` are further ones."""
    name, flags = CASES[case]
    method = load_method(name)
    known = {field.name for field in fields(method.arguments)}
    folders = {"generator": folder, "teacher": [folder, "self"], "complement": folder}
    small = {flag: value for flag, value in (SMALL | folders).items() if flag in known}
    return method, method.arguments(**small | flags | options)


def build_model(
    case, folder, packed=False, head="linear_tanh", dropout=0.0, pooling=CLS, spread=0.3, **options
) -> EncoderForTraining:
    """The model of a case, the same weights in every call."""
    folder = str(folder)
    method, args = arguments(case, folder, **options)
    config = load_config(folder)
    set_dropout(config, dropout)
    torch.manual_seed(1)
    tokenizer = method.tokenizer(args, load_tokenizer(folder))
    mask_at = mask_place(tokenizer) or -1  # where nothing has a template: the last
    with_output = method.reads_output(args) or case in WORDS
    model = (load_masked_lm if with_output else load_backbone)(folder, config)
    encoder = SentenceEncoder(model.base_model, pooling, None, 64, packed, place=mask_at)
    projection = projection_named(head, config.hidden_size, spread)
    objectives = method.build(args, encoder, projection, Checkpoint(folder, model))
    if case in WORDS:
        objectives.append(BagOfWords(TiedHead(model), 0.7))
    model = EncoderForTraining(encoder, projection, objectives).train()
    for generator in [part.generator for part in objectives if hasattr(part, "generator")]:
        generator.eval().train = lambda mode=True, module=generator: module  # no dropout
    return model


def mask_of(lengths: list[int]) -> torch.Tensor:
    """The mask of sentences of so many tokens, (B, L)."""
    return (torch.arange(max(lengths)) < torch.tensor(lengths)[:, None]).long()


def make_batch(case: str, folder, mask: torch.Tensor, chosen=0.4, seed=3, **options):
    """What the collator would make of random tokens: other ones in every view, all that the method
    of a case asks for. `mask` marks real tokens, (B, L); `chosen` is the chance of a token to be
    masked, a number or (B, 1); `options` are arguments of the method."""
    folder = str(folder)
    method, args = arguments(case, folder, **options)
    views, config = method.views(args), load_config(folder)
    generator = torch.Generator().manual_seed(seed)
    mask = mask.long().expand(len(views), -1, -1).contiguous()
    ids = torch.randint(10, 90, mask.shape, generator=generator)
    ids = ids.where(mask == 1, config.pad_token_id)
    drawn = (torch.rand(mask.shape, generator=generator) < chosen) & (mask == 1)
    drawn[:, :, 0] = False
    batch = {"input_ids": ids, "attention_mask": mask}
    for masking in method.masking(args):
        of = range(len(views)) if masking.views is None else list(masking.views)
        batch[f"{masking.name}_input_ids"] = torch.where(drawn, 7, ids)[of]
        batch[f"{masking.name}_labels"] = torch.where(drawn, ids, -100)[of]
    if any(view.dropout for view in views):
        batch["dropout_rates"] = torch.zeros(*mask.shape[:2], 1)
    if any(view.perturb for view in views):
        changed = torch.tensor([view.perturb is not None for view in views]).view(-1, 1, 1)
        straight = mask.cumsum(2).sub(1).clamp(min=0)
        turned = straight.flip(2) % mask.sum(2, keepdim=True)
        batch["positions"] = torch.where(changed, turned, straight)
        kept = torch.rand(*mask.shape, config.hidden_size, generator=generator) < 0.8
        batch["kept"] = torch.from_numpy(np.packbits(kept | ~changed.unsqueeze(-1), axis=-1))
    if any(view.target for view in views):
        whole = mask.flip(1)  # other lengths than those of what the encoder reads
        ids = torch.randint(10, 90, mask.shape, generator=generator)
        ids = ids.where(whole == 1, config.pad_token_id)
        batch |= {"target_input_ids": ids, "target_attention_mask": whole}
    if case in WORDS:
        batch["words"] = torch.where(drawn, ids, -100)
    if method.labels:
        batch["labels"] = torch.arange(mask.shape[1]).view(1, -1) % 3
    return batch


def step(model, batch, backward=None):
    """Terms (and their sum), gradients and buffers of a step; `backward` replaces the plain one."""
    model.zero_grad()
    if backward is None:
        output = model(**batch)
        output.loss.backward()
    else:
        output = backward(Batch.of(**batch))
    gradients = {name: p.grad for name, p in model.named_parameters() if p.grad is not None}
    return output.terms | {"loss": output.loss.detach()}, gradients, dict(model.named_buffers())


def assert_same_step(left, right, rel):
    """Each gradient to `rel` of itself, and a little of the whole one where it is nearly zero."""
    (terms, gradients, buffers), (other_terms, others, other_buffers) = left, right
    assert terms.keys() == other_terms.keys() and gradients.keys() == others.keys()
    for name, value in terms.items():
        assert other_terms[name].item() == approx(value.item(), rel=rel, abs=rel / 10), name
    whole = torch.cat([g.flatten() for g in gradients.values()]).norm()
    assert whole > 1e-3
    for name, g in gradients.items():
        assert (g - others[name]).norm() <= rel * (g.norm() + whole / 200), name
    for name, value in buffers.items():
        torch.testing.assert_close(value, other_buffers[name], rtol=rel, atol=rel / 10, msg=name)


def stage_one(folder, packed=False, skip_from=2, dropout=0.0) -> AuxiliaryMaskedLM:
    """Stage 1's model with two new layers, the same weights in every call."""
    config = load_config(str(folder))
    set_dropout(config, dropout)
    torch.manual_seed(1)
    lm = load_masked_lm(str(folder), config)
    return AuxiliaryMaskedLM(lm, new_head(lm.base_model, 2), skip_from, packed).train()


def one_view(batch: dict) -> dict[str, torch.Tensor]:
    """A batch of stage 1 from one with masked twins."""
    names = ("input_ids", "attention_mask", "masked_input_ids", "masked_labels")
    return {name: batch[name][:1] for name in names}


def stage_one_batch(folder, lengths: list[int], chosen: float = 0.4) -> dict[str, torch.Tensor]:
    """A batch of stage 1 of random tokens."""
    return one_view(make_batch("infocse", folder, mask_of(lengths), chosen))
