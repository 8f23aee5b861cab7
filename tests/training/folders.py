"""Checkpoints as a run leaves them, with files of a few bytes."""

import json

from training.checkpoint import commit

STATE = ("model.safetensors", "optimizer.pt", "scheduler.pt", "rng_state.pth", "trainer_state.json")


def checkpoint(root, step, run_id="one", without=None, also=(), **state):
    """A committed `checkpoint-STEP` in `root`; `step` may be a whole name.

    Args:
        without: a file that is left out.
        also: names of further files.
        state: what the Trainer's state holds beside its steps.
    """
    name = step if isinstance(step, str) else f"checkpoint-{step}"
    partial = root / "partial"
    partial.mkdir(parents=True)
    for file in {*STATE, *also} - {without}:
        (partial / file).write_text(f"{file} of {name}")
    if without != "trainer_state.json":
        steps = {"global_step": step if isinstance(step, int) else 5, "max_steps": 9}
        (partial / "trainer_state.json").write_text(json.dumps(steps | state))
    commit(partial, root / name, run_id)
    return root / name
