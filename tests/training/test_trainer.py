"""The hooks of a step, and the workers of a run."""

import multiprocessing
from types import SimpleNamespace
from unittest import mock

import pytest
from transformers import TrainerCallback

from bench.cases import TINY, Case, Materials
from training.trainer import Steps


@pytest.mark.parametrize("skipped", [False, True])
def test_a_skipped_step_does_not_move_the_momentum_encoder(skipped):
    model = mock.Mock()
    Steps(None, model).on_optimizer_step(
        None, None, None, optimizer=SimpleNamespace(step_was_skipped=skipped)
    )
    assert model.after_step.called is not skipped


def test_workers_stay_for_all_epochs_and_end_with_the_training(tmp_path):
    class Workers(TrainerCallback):
        def on_epoch_end(self, *args, **kwargs):
            workers.append([process.pid for process in multiprocessing.active_children()])

    workers: list[list[int | None]] = []
    materials = Materials(tmp_path, TINY, batch=4, length=8)
    flags = {"dataloader_num_workers": 1, "max_rows": 8, "num_train_epochs": 3, "dev": "none"}
    trainer = materials.trainer(Case("simcse", "bert", False, "float32"), **flags)
    trainer.add_callback(Workers())
    trainer.train()
    assert len(workers) == 3 and workers[0] == workers[1] == workers[2] != []
    assert not multiprocessing.active_children()
