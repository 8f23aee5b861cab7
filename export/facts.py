"""The facts in a model folder: run.json, scores.json and, of a baseline, baseline.json."""

import math
import re
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any

from huggingface_hub.errors import HFValidationError
from huggingface_hub.utils import validate_repo_id

from common.errors import BadInput
from common.files import read_json
from data.prepare import WIKI, WIKI_TERMS
from eval.scores import has_scores, read_scores
from models.objectives.base import Method
from training.folder import RUN_FILE, read_run
from training.methods import load_method, method_names

BASELINE = "baseline.json"  # as `python -m baselines` writes it
_TYPES = dict.fromkeys(("settings", "versions", "hardware", "best", "seen_test_texts"), dict)
_TYPES |= dict.fromkeys(("findings", "command"), list)
_TRIAL = 125 * 64  # examples between two evaluations of SimCSE's script
_DEV_SCORES = {
    "stsb_spearman": "Spearman's correlation on STS-B dev",
    "dev_spearman": "Spearman's correlation on dev pairs",
    "search_ndcg": "nDCG@10 on dev queries",
}
_SHA256 = re.compile(r"[0-9a-f]{64}")


@dataclass(frozen=True)
class Facts:
    """The contents of run.json, scores.json and baseline.json, each empty if the folder lacks it.

    `base_rows` are scores of the base model, to show beside `rows`.
    """

    record: dict[str, Any] = field(default_factory=dict)
    rows: list[dict] = field(default_factory=list)
    scores: Path | None = None
    baseline: dict[str, Any] = field(default_factory=dict)
    base_rows: list[dict] = field(default_factory=list)

    @property
    def settings(self) -> dict[str, Any]:
        return self.record.get("settings", {})

    @property
    def trajectory(self) -> dict[str, Any]:
        return self.record.get("trajectory", {})

    @property
    def verdict(self) -> dict[str, Any]:
        """The comparison of the result with the initial model; empty without one."""
        verdict = self.record.get("verdict")
        return verdict if isinstance(verdict, dict) else {}

    @property
    def dev_score(self) -> str:
        """The dev score of a run that selected its best model, in words."""
        return _DEV_SCORES.get(str(self.verdict.get("metric")), "the dev score")

    @property
    def dev_scores(self) -> tuple[float, float] | None:
        """The dev scores of the base model and of this one; None if they were not compared, or are the same model."""
        known = str(self.verdict.get("metric")) in _DEV_SCORES and not self.is_initial
        scores = self.verdict.get("start"), self.verdict.get("result")
        return scores if known and all(isinstance(score, float) for score in scores) else None

    @property
    def is_initial(self) -> bool:
        """Whether the result has the initial weights: they were kept, or are the best mixture (a share of 1)."""
        return self.verdict.get("shipped") == "start" or self.verdict.get("start_share") == 1

    @property
    def method(self) -> str | None:
        """The method that trained the weights: a file of models/objectives."""
        method = self.settings.get("method")
        return method if isinstance(method, str) and not self.is_initial else None

    @property
    def known_method(self) -> Method | None:
        """The method, if this version has it."""
        return load_method(self.method) if self.method in method_names() else None

    @property
    def without(self) -> list[str]:
        """Weights of the method's loss terms that the run set to 0: the model was trained by another loss."""
        if self.method not in method_names():
            return []
        weights = [field for field in fields(load_method(self.method).arguments) if field.name.endswith("_weight")]
        return [field.name for field in weights if field.default and self.settings.get(field.name) == 0]

    @property
    def widths(self) -> list[int]:
        """Lengths of the prefixes of a vector that were trained for separate use (Matryoshka)."""
        dims = self.settings.get("matryoshka_dims")
        return [width for width in dims if isinstance(width, int)] if isinstance(dims, list) else []

    @property
    def text(self) -> dict[str, Any]:
        """The training text: files (names), sha256, rows, columns."""
        text = self.trajectory.get("text")
        files = self.record.get("text_files") or (text.get("files") if isinstance(text, dict) else None)
        return text | {"files": files} if isinstance(text, dict) and isinstance(files, list) else {}

    @property
    def base_hash(self) -> str | None:
        """sha256 of the weights of the local folder that training started from."""
        start = str(self.trajectory.get("start"))
        return start if _SHA256.fullmatch(start) else None

    @property
    def result_hash(self) -> str | None:
        """sha256 of the run's own weights."""
        result = self.record.get("result")
        return result.get("model.safetensors") if isinstance(result, dict) else None

    @property
    def base_model(self) -> str | None:
        """The hub id of the model that training started from; None for a local folder."""
        name, local = str(self.trajectory.get("start") or ""), self.trajectory.get("contents")
        if self.base_hash or name != self.settings.get("model_name_or_path"):
            return None
        if isinstance(local, dict) and "model_name_or_path" in local:  # a local folder without model.safetensors
            return None
        try:
            validate_repo_id(name)
        except HFValidationError:
            return None
        return None if Path(name).exists() else name

    @property
    def counted(self) -> dict[str, dict]:
        """Task -> how many of its sentences were `seen` in the training text, if counted."""
        counts = self.record.get("seen_test_texts") or {}
        return {name: count for name, count in counts.items() if isinstance(count, dict)}

    @property
    def examples(self) -> int:
        """The number of training examples; unrecorded factors count as one."""
        names = ("per_device_train_batch_size", "gradient_accumulation_steps", "world_size")
        numbers = self.record.get("steps"), *map(self.trajectory.get, names)
        return math.prod(number if isinstance(number, int) else 1 for number in numbers)

    @property
    def is_trial(self) -> bool:
        """Whether training was too short to be meaningful."""
        return isinstance(self.record.get("steps"), int) and self.examples < _TRIAL and not self.is_initial

    @property
    def text_terms(self) -> str:
        """The training text's licence, if known: of the one million sentences, which `data.prepare` downloads."""
        is_wiki = self.text.get("files") == [Path(WIKI.target).name] and self.text.get("rows") == WIKI.min_lines
        return WIKI_TERMS if is_wiki else "licence not stated"


def read_facts(folder: Path, base_scores: str | None = None) -> Facts:
    """The facts of a run or baseline folder, empty for any other model, and the scores of its base model.

    Raises:
        BadInput: the run is unfinished, or the record has values of the wrong type.
        CheckpointRefused: run.json cannot be read.
    """
    record = read_run(folder) if (folder / RUN_FILE).exists() else {}
    if record and record["status"] != "finished":
        raise BadInput(f"{folder}: the run is not finished; repeat its command, or export {folder / 'best'}")
    if wrong := [name for name, expected in _TYPES.items() if not isinstance(record.get(name, expected()), expected)]:
        raise BadInput(f"{folder / RUN_FILE}: '{wrong[0]}' is not a {_TYPES[wrong[0]].__name__}")
    scores = folder / "scores.json"
    rows = read_scores(scores) if has_scores(scores) else []
    fitted = folder / BASELINE
    baseline = read_json(fitted, "the record of a baseline") if fitted.is_file() else {}
    base_rows = read_scores(Path(base_scores)) if base_scores else []
    return Facts(record, rows, scores if rows else None, baseline, base_rows)
