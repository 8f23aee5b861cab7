"""What a model folder says about itself: run.json, scores.json and a baseline's baseline.json."""

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from huggingface_hub.errors import HFValidationError
from huggingface_hub.utils import validate_repo_id

import infocse
from common.errors import BadInput
from common.files import RUN_FILE, read_json
from eval.scores import has_scores, headline, read_scores, scores_of
from models.objectives.base import Method
from training.methods import load_method
from training.run_folder import read_run, starts

BASELINE = "baseline.json"  # as `python -m baselines` writes it


@dataclass(frozen=True)
class Facts:
    """The contents of the files, each empty if the folder lacks it."""

    record: dict[str, Any] = field(default_factory=dict)
    rows: list[dict] = field(default_factory=list)
    baseline: dict[str, Any] = field(default_factory=dict)

    def mapping(self, name: str) -> dict[str, Any]:
        """An entry of the record that is a mapping; empty if it is missing."""
        value = self.record.get(name)
        return value if isinstance(value, dict) else {}

    @property
    def own_rows(self) -> list[dict]:
        """The headline scores of the model alone, without those of BM25 or of both."""
        return [row for row in headline(self.rows) if row.get("search", "dense") == "dense"]

    @property
    def starts(self) -> list[dict[str, Any]]:
        """What every start of the run ran on, if that differs, the last one last."""
        return starts(self.record)

    @property
    def method(self) -> Method | None:
        """The method that trained the weights, if this version has it."""
        name = self.mapping("settings").get("method")
        return load_method(name) if name in infocse.methods() else None

    @property
    def dev_scores(self) -> tuple[float, float] | None:
        """The dev scores of the base model and of this one; None if they were not compared."""
        verdict = self.mapping("verdict")
        scores = verdict.get("start"), verdict.get("result")
        return scores if all(isinstance(score, float) for score in scores) else None

    @property
    def base_model(self) -> str | None:
        """The hub id of the model that training started from; None for a local folder."""
        trajectory = self.mapping("trajectory")
        name = str(trajectory.get("start") or "")  # of a local folder: a sha256, or its contents
        contents = trajectory.get("contents")
        local = isinstance(contents, dict) and "model_name_or_path" in contents
        given = self.mapping("settings").get("model_name_or_path")
        if local or name != given or Path(name).exists():
            return None
        try:
            validate_repo_id(name)
        except HFValidationError:
            return None
        return name


def read_facts(folder: Path) -> Facts:
    """The facts of a run or baseline folder, empty for any other model.

    Raises:
        BadInput: the run is unfinished.
        CheckpointRefused: run.json cannot be read.
    """
    record = read_run(folder) if (folder / RUN_FILE).exists() else {}
    if record and record["status"] != "finished":
        raise BadInput(
            f"{folder}: the run is not finished; repeat its command, or export {folder / 'best'}"
        )
    scores = scores_of(folder)
    rows = read_scores(scores) if has_scores(scores) else []
    fitted = folder / BASELINE
    baseline = read_json(fitted, "the record of a baseline") if fitted.is_file() else {}
    return Facts(record, rows, baseline)
