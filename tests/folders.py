"""Read and change the folders of runs; make checkpoints with files of a few bytes."""

import json
import shutil

import torch
from safetensors.torch import load_file

from common.folders import commit, read_manifest, seal


def record(run):
    return json.loads((run / "run.json").read_text())


def run_record():
    """A run.json as run_unsup.py writes it, in short."""
    text = {"columns": 1, "files": ["/secret/text/mine.txt"], "rows": 1234, "sha256": "cd" * 32}
    settings = {"method": "simcse", "seed": 17, "learning_rate": 3e-5, "pooling": "avg"}
    trajectory = settings | {"temperature": 0.1, "max_length": 32, "max_steps": 500}
    trajectory |= {"world_size": 1, "script": "run_unsup.py", "start": "ab" * 32, "text": text}
    places = {"output_dir": "/secret/runs", "model_name_or_path": "/secret/models/mini-bert"}
    made = {"commit": "ef" * 20, "changed_files": 2, "hardware": {"device": "cpu"}}
    return {
        "format": 1,
        "script": "run_unsup.py",
        "command": ["python", "run_unsup.py", "--data_dir=/secret/data"],
        "settings": settings | places,
        "trajectory": trajectory,
        "best": {"step": 375, "value": 80.92},
        "steps": 500,
        "status": "finished",
        "versions": {"python": "3.11.7", "torch": "2.13.0"},
        **made,
    }


def change_json(path, **values):
    """Other values in a file with one JSON object; `...` takes one out."""
    content = json.loads(path.read_text()) | values
    kept = {name: value for name, value in content.items() if value is not ...}
    path.write_text(json.dumps(kept))
    return path.parent


def change_record(run, **values):
    change_json(run / "run.json", **values)


def normalise(folder):
    """Make a saved encoder one of sentence-transformers that normalises its vectors."""
    change_json(folder / "config.json", sentence_embedding=...)
    modules = json.loads((folder / "modules.json").read_text())
    added = {"idx": 2, "name": "2", "path": "2_Normalize"}
    modules.append(added | {"type": "sentence_transformers.models.Normalize"})
    (folder / "modules.json").write_text(json.dumps(modules))


class Evil:
    """A pickle that makes a file where it is read."""

    def __init__(self, path):
        self.path = str(path)

    def __reduce__(self):
        return (open, (self.path, "w"))


def history(run):
    return [json.loads(line) for line in (run / "log.jsonl").read_text().splitlines()]


def times(run):
    """When each file of a run was last written."""
    return {path: path.stat().st_mtime_ns for path in run.rglob("*")}


def same_weights(left, right, file="model.safetensors"):
    a, b = load_file(left / file), load_file(right / file)
    return a.keys() == b.keys() and all(torch.equal(a[name], b[name]) for name in a)


def rewind(run, step):
    """Leave of a finished run what a process leaves that is killed after a checkpoint."""
    for folder in run.glob("checkpoint-*"):
        if int(folder.name.split("-")[1]) > step:
            shutil.rmtree(folder)
    for path in run.glob("*.safetensors"):
        path.unlink()
    change_record(run, status="running")


def shard(folder, tensors):
    """Pickled weights in two files, and their index; return the second file."""
    names, weight_map = sorted(tensors), {}
    for number, part in enumerate((names[::2], names[1::2]), 1):
        file = f"pytorch_model-0000{number}-of-00002.bin"
        torch.save({name: tensors[name] for name in part}, folder / file)
        weight_map |= dict.fromkeys(part, file)
    index = json.dumps({"metadata": {}, "weight_map": weight_map})
    (folder / "pytorch_model.bin.index.json").write_text(index)
    return folder / file


def reseal(folder):
    """Write a manifest that fits the files of a folder as they are now."""
    seal(folder, read_manifest(folder)["facts"])


STATE = ("model.safetensors", "optimizer.pt", "scheduler.pt", "rng_state.pth", "trainer_state.json")


def checkpoint(root, step, run_id="one", without=None, also=(), **state):
    """A committed `checkpoint-STEP` (or a whole name) in `root`, with the files `also`, `without`
    one; `state` is what the Trainer's state holds beside its steps."""
    name = step if isinstance(step, str) else f"checkpoint-{step}"
    partial = root / "partial"
    partial.mkdir(parents=True)
    for file in {*STATE, *also} - {without}:
        (partial / file).write_text(f"{file} of {name}")
    if without != "trainer_state.json":
        steps = {"global_step": step if isinstance(step, int) else 5, "max_steps": 9}
        (partial / "trainer_state.json").write_text(json.dumps(steps | state))
    commit(partial, root / name, {"run": run_id})
    return root / name
