"""The hooks of a step."""

from types import SimpleNamespace
from unittest import mock

import pytest

from training.trainer import Steps


@pytest.mark.parametrize("skipped", [False, True])
def test_a_skipped_step_does_not_move_the_momentum_encoder(skipped):
    model = mock.Mock()
    Steps(None, model).on_optimizer_step(
        None, None, None, optimizer=SimpleNamespace(step_was_skipped=skipped)
    )
    assert model.after_step.called is not skipped
