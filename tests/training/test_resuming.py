"""The random state of a GPU is in place after a resume, or the resume is refused."""

from types import SimpleNamespace

import pytest
import torch

from common.errors import CheckpointRefused
from training.resuming import check_device_state


@pytest.mark.parametrize(
    ("saved", "fits"),
    [
        ({"cuda": torch.tensor([1, 2], dtype=torch.uint8)}, True),
        ({"cuda": [torch.tensor([9, 9], dtype=torch.uint8), torch.tensor([1, 2], dtype=torch.uint8)]}, True),
        ({"cuda": torch.tensor([1, 3], dtype=torch.uint8)}, False),
        ({"cuda": torch.tensor([1], dtype=torch.uint8)}, False),
        ({"cpu": torch.tensor([1, 2], dtype=torch.uint8)}, False),
    ],
)
@pytest.mark.parametrize("processes", [1, 2])
def test_a_random_state_that_is_not_in_place_is_refused(tmp_path, monkeypatch, saved, fits, processes):
    torch.save(saved, tmp_path / ("rng_state.pth" if processes == 1 else "rng_state_1.pth"))
    monkeypatch.setattr(torch.cuda, "get_rng_state", lambda device: torch.tensor([1, 2], dtype=torch.uint8))
    args = SimpleNamespace(world_size=processes, process_index=1, device=torch.device("cuda"))
    if fits:
        check_device_state(tmp_path, args)
    else:
        with pytest.raises(CheckpointRefused, match="random state of its GPU cannot be restored"):
            check_device_state(tmp_path, args)
