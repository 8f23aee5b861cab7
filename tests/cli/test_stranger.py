"""Two methods that are not in the repository: the example of CONTRIBUTING.md, and one for the contract tests."""

import os
import re
import shutil
import subprocess
import sys

import pytest
from safetensors.torch import load_file

import models.objectives
import run_unsup
from tests.folders import history, record
from tests.sources import ROOT


@pytest.fixture
def toy(tmp_path, monkeypatch):
    """The page's file in a folder that counts as a part of models/objectives."""
    [code] = re.findall(r"```python\n(.*?)```", (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8"), flags=re.DOTALL)
    folder = tmp_path / "objectives"
    folder.mkdir()
    (folder / "toy.py").write_text(code, encoding="utf-8")
    monkeypatch.setattr(models.objectives, "__path__", [*models.objectives.__path__, str(folder)])
    yield code
    sys.modules.pop("models.objectives.toy", None)


def test_a_method_is_picked_up_from_its_one_file(toy, unsup, tmp_path, capsys):
    run_unsup.main(unsup("run", "toy", drop_rate=0.3, max_steps=4, save_steps=2))
    terms = [line for line in history(tmp_path / "run") if "alignment" in line]
    assert len(terms) == 4
    for line in terms:
        assert line["loss"] == pytest.approx(line["alignment"] + line["uniformity"], rel=1e-4)
    found = record(tmp_path / "run")
    assert (found["status"], found["settings"]["drop_rate"]) == ("finished", 0.3)
    assert load_file(tmp_path / "run" / "model.safetensors")
    with pytest.raises(SystemExit):
        run_unsup.main(["--method", "toy", "--help"])
    assert "--drop_rate" in capsys.readouterr().out


NOT_COPIED = (".*", "__pycache__", "corpora", "results", "runs", "toy")
METHOD = '''"""A stranger: SimCSE with a queue, and a guess of how much of a twin of its own is masked."""

from __future__ import annotations

from dataclasses import dataclass, field

import torch
from torch import Tensor, nn

from common.ranges import Count, Share
from data.views import IGNORED, Masking
from models.collectives import gather_rows
from models.contrast import info_nce
from models.objectives.moco import VectorQueue
from models.objectives import simcse
from models.objectives.base import Batch, Encoded, Objective, Term


@dataclass
class Arguments(simcse.Arguments):
    """Options of the stranger."""

    queue_size: Count = field(default=30, metadata={"help": "negatives that are kept (ours)"})
    other_rate: Share = field(default=0.3, metadata={"help": "share of masked tokens (ours)"})


class Queued(Objective):
    """InfoNCE with the vectors of earlier batches as negatives."""

    reads_projection = True
    compares = True

    def __init__(self, size: int, width: int, temperature: float) -> None:
        super().__init__()
        self.queue = VectorQueue(size, width)
        self.temperature = temperature

    def forward(self, encoded: Encoded, batch: Batch) -> dict[str, Term]:
        query, key = encoded.projected
        loss = info_nce(query, key, self.temperature, self.queue.contents())
        self.queue.push(key.detach())
        return {"contrastive": Term(loss, 1.0)}


class Guess(Objective):
    """How many of a sentence's tokens are masked, told from the vector of the whole and the states of the rest."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.scores = nn.Linear(2 * width, 1)

    def forward(self, encoded: Encoded, batch: Batch) -> dict[str, Term]:
        twin, encoder = batch.twins["other"], encoded.encoder
        mask = batch.attention_mask[1]
        rest = encoder(twin.input_ids[0], mask).pooled
        wanted = (twin.labels[0] != IGNORED).sum(1) / mask.sum(1)
        found = self.scores(torch.cat([encoded.pooled[1], rest], dim=-1)).squeeze(-1)
        total = ((found - wanted).square() * (twin.labels[0] != IGNORED).sum(1)).sum()
        return {"guess": Term(total, 1.0, twin.count)}

    def tokens(self, batch: Batch) -> Tensor:
        return batch.twins["other"].count


class Stranger(simcse.SimCSE):
    """What it asks of its data, and its two objectives."""

    arguments = Arguments

    def masking(self, args: Arguments) -> tuple[Masking, ...]:
        """A twin of the second view."""
        return (Masking(args.other_rate, views=(1,), name="other"),)

    def build(self, args: Arguments, encoder, projection, source) -> list[Objective]:
        """The contrastive loss with its queue, and the guess."""
        width = encoder.config.hidden_size
        return [Queued(args.queue_size, width, args.temperature), Guess(width)]


METHOD = Stranger()
'''
CONTRACT = """tests/cli/test_methods.py::test_a_method_trains_resumes_and_is_exported
tests/cli/test_methods.py::test_every_trainable_parameter_has_a_gradient_and_no_frozen_one
tests/cli/test_methods.py::test_the_two_views_really_differ
tests/cli/test_methods.py::test_the_queue_really_holds_negatives
tests/models/test_packed.py::test_losses_and_gradients_equal_the_padded_ones
tests/models/test_caching.py::test_without_dropout_it_is_the_plain_pass
tests/ddp/test_several_processes.py::test_several_processes_equal_one""".split()


@pytest.mark.slow  # a test session of its own
def test_a_method_of_one_file_passes_every_contract_test(tmp_path):
    tree = shutil.copytree(ROOT, tmp_path / "tree", ignore=shutil.ignore_patterns(*NOT_COPIED))
    (tree / "models" / "objectives" / "stranger.py").write_text(METHOD, encoding="utf-8")
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-v", "-k", "stranger", "-p", "no:cacheprovider", *CONTRACT],
        cwd=tree,
        env=os.environ | {"OMP_NUM_THREADS": "1", "HF_HUB_OFFLINE": "1"},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stdout[-5000:]
    passed = re.findall(r"^(\S+?)\[.*PASSED", done.stdout, re.MULTILINE)
    assert set(passed) == set(CONTRACT), done.stdout[-5000:]
