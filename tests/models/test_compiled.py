"""A compiled step: whole, the same loss and gradients, and one graph for each of a few shapes."""

import itertools
from dataclasses import replace

import pytest
import torch
from torch._dynamo.utils import counters
from transformers import BertConfig, BertForMaskedLM

from bench import pair
from bench.cases import STAGE_ONE, Case, Materials
from models.encoder import SentenceEncoder
from models.objectives.simcse import Contrastive
from models.training import EncoderForTraining
from training.methods import method_names

SIZE = {
    "hidden_size": 32,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "intermediate_size": 64,
    "vocab_size": 1000,
}


@pytest.fixture(autouse=True)
def _nothing_compiled():
    torch.compiler.reset()
    counters.clear()
    yield
    torch.compiler.reset()


def build(kind, packed, dropout=0.0):
    torch.manual_seed(0)
    lm = BertForMaskedLM(BertConfig(**SIZE, hidden_dropout_prob=dropout, attention_probs_dropout_prob=dropout))
    if kind == "infocse":
        return pair.ours(lm, packed=packed, weight=1.0)
    projection = pair.projection(lm)
    encoder = SentenceEncoder(lm.bert, "cls_before_pooler", None, 512, packed)
    if kind == "s_simcse":
        encoder.sample_dropout()
    return EncoderForTraining(encoder, projection, [Contrastive(0.05)]).train()


def batch(model, kind, rows, seed):
    made = pair.batch(model.config, rows, 32, seed)
    marked = {"masked": ((0, 1), made["masked_labels"].numpy())}
    if kind != "infocse":
        made, marked = {name: made[name] for name in ("input_ids", "attention_mask")}, {}
    if kind == "s_simcse":
        made["dropout_rates"] = torch.rand(2, rows, 1, generator=torch.Generator().manual_seed(seed))
    packing = model.packing(static=True)
    return made | {"layouts": packing.layouts(made["attention_mask"].numpy() != 0, marked)}


def measured(call, model, made):
    model.zero_grad()
    torch.manual_seed(1)
    loss = call(**made).loss
    loss.backward()
    return loss.item(), torch.cat([p.grad.flatten() for p in model.parameters() if p.grad is not None])


def check_step(kind, packed, backend, tolerance=1e-5):
    model = build(kind, packed)
    made = batch(model, kind, 8, 1)
    made["input_ids"][1] = made["input_ids"][1].roll(1, 0)  # different views: the contrastive term is not trivial
    compiled = torch.compile(model, backend=backend, fullgraph=True, dynamic=False)
    (loss, gradient), (other, found) = measured(model, model, made), measured(compiled, model, made)
    assert other == pytest.approx(loss, rel=tolerance)
    assert (gradient - found).norm() <= 10 * tolerance * gradient.norm()
    assert counters["stats"]["unique_graphs"] == 1


KINDS = list(itertools.product(("simcse", "infocse", "s_simcse"), (True, False)))
SLOW = {case: pytest.param(*case, marks=pytest.mark.slow) for case in KINDS}


@pytest.mark.parametrize(
    ("kind", "packed"), [("simcse", True), ("infocse", True), SLOW["simcse", False], SLOW["infocse", False]]
)
def test_the_whole_step_is_one_graph_with_the_same_gradients(kind, packed):
    check_step(kind, packed, "aot_eager")


BREAKS = {"dclr", "esimcse", "memory_bank", "moco"}  # noise drawn on the host; a queue that grows in every step


@pytest.fixture(scope="module")
def materials(tmp_path_factory):
    return Materials(tmp_path_factory.mktemp("materials"), layers=2, batch=8, length=16)


@pytest.mark.slow
@pytest.mark.parametrize("packed", [True, False], ids=["packed", "padded"])
@pytest.mark.parametrize("name", sorted({*method_names(), STAGE_ONE} - BREAKS))
def test_the_step_of_other_methods_is_one_graph(materials, name, packed):
    model, collator = materials.parts(Case(name, "bert", packed, "float32"))
    inner = getattr(collator, "_collate", collator)
    inner.packing = replace(inner.packing, static=True)
    compiled = torch.compile(model.train(), backend="eager", fullgraph=True, dynamic=False)
    graphs = []
    for step in range(4):
        compiled(**collator([(0, row, step) for row in range(8)])).loss.backward()
        model.after_step()
        graphs.append(counters["stats"]["unique_graphs"])
    assert graphs[0] == 1 and len(set(graphs[1:])) == 1, "CT keeps the pairs that its first step makes"


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["simcse", "infocse"])
def test_inductor_compiles_it_too(kind):
    """Its functions are other approximations, and batch norm over few rows multiplies the difference."""
    check_step(kind, True, "inductor", tolerance=1e-3)


@pytest.mark.parametrize(
    ("kind", "packed"), [("simcse", True), *(SLOW[case] for case in SLOW if case != ("simcse", True))]
)
def test_fifty_batches_of_real_lengths_need_a_graph_for_each_of_a_few_shapes(kind, packed):
    """With dropout, by the frontend alone: what it has not compiled yet it would compile again; not for other rates."""
    model = build(kind, packed, dropout=0.1)
    compiled = torch.compile(model, backend="eager", fullgraph=True, dynamic=False)
    shapes = set()
    for seed in range(50):
        made = batch(model, kind, 64, seed)
        layout = made["layouts"][(0, 1), 0, 64]
        shapes.add((layout.columns, *(len(part) for part in layout.parts.values())))
        with torch.no_grad():
            compiled(**made)
    assert len(shapes) <= 4
    assert counters["stats"]["unique_graphs"] == len(shapes)
