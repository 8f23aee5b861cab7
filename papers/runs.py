"""A run of a table or study: its folder, its command, how it is trained, recorded and scored."""

from __future__ import annotations

import logging
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from common.errors import BadInput, ProjectError, Stopped
from common.files import ROOT, RUN_FILE, digest, find_files
from common.folders import locked
from data.lines import content_hash
from eval.encode import Encode, Encoder, device_here
from eval.scores import rows_of, write_scores
from eval.tasks import Task, score_all
from export.facts import BASELINE
from infocse import load
from training.config_files import read_config, words_of
from training.methods import STAGE_ONE, script_of
from training.provenance import contents, provenance, start_of
from training.run_folder import discard, finished, read_run, starts, write_run

logger = logging.getLogger(__name__)
CONFIGS = ROOT / "configs"
# facts about a run in a row of results
FACTS = (
    "steps",
    "scored_step",
    "stage_one_steps",
    "precision",
    "commit",
    "versions",
    "hardware",
    "earlier_starts",
    "text",
    "start",
)
SEARCH_LENGTH = 128  # tokens per document and query in studies: longer ones take hours on a CPU
read_once = cache(read_config)  # tables read the same configurations repeatedly


@dataclass(frozen=True)
class Choice:
    """The flags of `python -m papers` that determine the runs."""

    backbone: str | None = None
    seeds: Sequence[int] = (0, 1, 2)
    steps: int | None = None
    model: str | None = None
    stage_one: str | None = None
    data_dir: str = "corpora"
    train_file: str | None = None
    runs: str = "runs/tables"
    bf16: bool = True

    def command(self, table: str) -> str:
        """What fills a table with these runs, on one's own model and data."""
        words = ["python -m papers", table]
        if self.backbone:
            words.append(f"--backbone {self.backbone}")
        if self.steps:
            words.append(f"--steps {self.steps}")
        if not self.bf16:
            words.append("--float32")
        return " ".join([*words, "--seeds", *map(str, self.seeds)])


@dataclass(frozen=True)
class RunPlan:
    """How to fill a row: train a configuration once per seed, or score a model as it is or fitted.

    Attributes:
        name: prefix of the folder names.
        flags: flags of the script, without seed, data and output paths; empty for an off-the-shelf
            model.
        starts_from: the plan whose run with the same seed this one starts from.
        model: of an off-the-shelf model or a baseline; a file, for word vectors.
        pooling: of an off-the-shelf model.
        differences: from the paper's runs: backbone, checkpoint, text, budget.
        baseline: command of `python -m baselines`.
    """

    name: str
    flags: Mapping[str, Any]
    starts_from: RunPlan | None = None
    model: str | None = None
    pooling: str | None = None
    differences: tuple[str, ...] = ()
    baseline: str | None = None

    @property
    def seeded(self) -> bool:
        """Whether seeds give different figures; whitening and word vectors draw nothing."""
        return bool(self.starts_from or (self.flags and self.baseline in (None, "flow")))

    @property
    def scored_at_once(self) -> bool:
        """Whether it is fitted where it is scored, and leaves no model."""
        return self.baseline in ("flow", "word_vectors")

    def settings(self) -> dict[str, Any]:
        """The configuration, overridden by the flags."""
        settings: dict[str, Any] = {}
        if "config" in self.flags:
            settings.update(read_once(*self.flags["config"]))
        settings.update(self.flags)
        if self.model:
            settings["model_name_or_path"] = self.model
        return settings

    def folder(self, choice: Choice, seed: int) -> Path:
        """The run's folder: its name, a hash of all that determines its weights, and the seed."""
        settings = {**self.settings(), "config": self.name, "output_dir": None}
        decisive = dict(sorted(settings.items())) if self.flags else None
        start = self.starts_from.folder(choice, seed).name if self.starts_from else None
        hashed = digest([decisive, start, self.model, self.pooling, choice.bf16])[:10]
        name = f"{self.name}_{hashed}"
        if self.seeded:
            name += f"_seed-{self.flags.get('seed', seed)}"
        return Path(choice.runs) / name

    def folders(self, choice: Choice) -> dict[int, Path]:
        """Seed -> folder; without a random draw there is only the first seed."""
        seeds = choice.seeds if self.seeded else choice.seeds[:1]
        return {seed: self.folder(choice, seed) for seed in seeds}

    def command(self, choice: Choice, seed: int) -> list[str]:
        """The script and the flags of the run; empty for an off-the-shelf model."""
        flags: dict[str, Any] = {"data_dir": choice.data_dir}
        start = str(self.starts_from.folder(choice, seed)) if self.starts_from else self.model
        if self.baseline:
            words = ["-m", "baselines", self.baseline]
            if start:
                words.append(start)
            flags.update(self.flags)
            if self.baseline == "flow":
                flags["seed"] = str(seed)
            if not self.scored_at_once:
                flags["output"] = str(self.folder(choice, seed))
            return [*words, *words_of(flags)]
        if not self.flags:
            return []
        flags |= {"seed": str(seed), "bf16": str(choice.bf16).lower(), **self.flags}
        if self.starts_from:
            flags["model_name_or_path"] = start
        method = self.settings().get("method")
        if method:  # scored afterwards, so that tasks can be added to a finished run
            flags["test_tasks"] = "none"
        flags["output_dir"] = str(self.folder(choice, seed))
        flags["use_cpu"] = str(device_here() == "cpu").lower()
        flags["disable_tqdm"] = "true"
        return [script_of(method), *words_of(flags)]

    def train(self, choice: Choice, seed: int, wait: bool = True) -> None:
        """Train or resume the run, after the run it starts from.

        For a model that nothing trains, only a record is written.

        Args:
            choice: the command's flags.
            seed: of the run.
            wait: for another command that trains the run or the one it starts from.

        Raises:
            FolderInUse: another command trains it, unless `wait`.
            ProjectError: the script failed; it has printed the reason. The error has its exit code.
        """
        folder = self.folder(choice, seed)
        if record := finished(folder):
            self._refuse_changed(choice, seed, record)
            return
        with locked(folder, wait):
            with locked(folder / RUN_FILE, wait):  # its script may outlive a killed command
                pass
            if not finished(folder):
                self._train(choice, seed, folder, wait)

    def _refuse_changed(self, choice: Choice, seed: int, record: Mapping[str, Any]) -> None:
        """Raise BadInput if files that a finished run has read have another content now."""
        settings, inputs = self.settings(), record["trajectory"]
        if self.starts_from:
            settings["model_name_or_path"] = str(self.starts_from.folder(choice, seed))
        changed = []
        for name, before in inputs.get("contents", {}).items():
            now = _content(_hashable(settings.get(name)))
            if any(now[file] != before[file] for file in now.keys() & before.keys()):
                changed.append(name)
        before, files = inputs.get("text", {}).get("sha256"), settings.get("train_file")
        if before and files and _text(_hashable(files), choice.data_dir) not in (None, before):
            changed.append("train_file")
        if changed:
            raise BadInput(
                f"{self.folder(choice, seed)}: {changed[0]} {settings[changed[0]]} has changed "
                "since this run; remove the run, or give another --runs"
            )

    def _train(self, choice: Choice, seed: int, folder: Path, wait: bool) -> None:
        if self.starts_from:
            self.starts_from.train(choice, seed, wait)
        if self.flags and not self.baseline:
            launch(*self.command(choice, seed))
            discard(folder, read_run(folder).get("run_id"))
            return
        # What is scored at once is encoded in float32.
        facts = {"precision": precision(choice.bf16 and not self.scored_at_once), **provenance()}
        text = None
        if not self.baseline:
            facts |= {"model": self.model, "pooling": self.pooling}
        elif not self.scored_at_once and not (folder / BASELINE).is_file():
            from baselines import __main__ as baselines  # slow to import

            # Here and not in a process of its own, which would find the folder locked.
            baselines.main(self.command(choice, seed)[2:])
        if "train_file" in self.flags:
            text = _text(_hashable(self.flags["train_file"]), choice.data_dir)
        record_untrained(folder, facts, self.model, text)

    def fill(
        self, choice: Choice, seed: int, tasks: Mapping[str, Sequence[Task]], wait: bool
    ) -> None:
        """Train and score the run; FolderInUse if another command does."""
        with locked(self.folder(choice, seed)):
            self.train(choice, seed, wait)
            self.score(choice, seed, tasks)

    def score(self, choice: Choice, seed: int, tasks: Mapping[str, Sequence[Task]]) -> None:
        """Write the missing scores files of the run."""
        folder = self.folder(choice, seed)
        missing = [name for name in tasks if not (folder / f"{name}.json").is_file()]
        if missing and self.scored_at_once:
            from baselines import __main__ as baselines  # slow to import

            args = baselines.parser().parse_args(self.command(choice, seed)[2:])
            encode, facts = baselines.fitted(args)
            for name in missing:
                write(folder / f"{name}.json", tasks[name], choice.data_dir, encode, facts)
            return
        for name in missing:
            longest = SEARCH_LENGTH if name.startswith("retrieval-") else None
            settings = {"pooling": self.pooling, "max_length": longest, "bf16": choice.bf16}
            model = None if self.baseline else self.model
            score(folder, name, tasks[name], choice.data_dir, model, **settings)


def _hashable(value: Any) -> Any:
    return tuple(value) if isinstance(value, list) else value


@cache
def _content(value: Any) -> dict[str, str]:
    """The hashes of the files of a checkpoint, see `contents`; read once a command."""
    return contents({"": value}).get("", {})


@cache
def _text(files: str | tuple[str, ...], data_dir: str) -> str | None:
    """The hash of a text; None if it is not here. Read once a command."""
    try:
        return content_hash(find_files([files] if isinstance(files, str) else files, data_dir))
    except BadInput:
        return None


def load_all(tasks: Mapping[str, Sequence[Task]], data_dir: str) -> None:
    """Read all test data, so that missing data is an error now and not after the training."""
    for some in tasks.values():
        for task in some:
            task.load(data_dir)


def launch(script: str, *argv: str) -> None:
    """Run a training script; when this process is stopped, it stops first.

    Raises:
        ProjectError: it failed; the error has its exit code.
    """
    command = [sys.executable, str(ROOT / script), *argv]
    with subprocess.Popen(command, stdout=sys.stderr) as process:  # stdout is for the table
        try:
            code = process.wait()
        except Stopped:
            process.terminate()
            raise
    if code:
        advice = "see above" if code == BadInput.exit_code else "run it again to resume"
        error = ProjectError(f"{script} {' '.join(argv)} failed with exit code {code}; {advice}")
        error.exit_code = max(code, 1)
        raise error


def record_untrained(
    folder: Path, facts: Mapping[str, Any], model: str | None = None, text: str | None = None
) -> None:
    """Write a record like that of a finished run, for an off-the-shelf model or a baseline.

    `text` is the sha256 of the text that a baseline was fitted to.
    """
    hashes = contents({"model_name_or_path": model})
    inputs: dict[str, Any] = {"contents": hashes}
    if model:
        inputs["start"] = start_of(model, hashes.get("model_name_or_path", {}))
    if text:
        inputs["text"] = {"sha256": text}
    write_run(folder, {"status": "finished", "trajectory": inputs, "steps": 0, **facts})


def facts_of(record: Mapping[str, Any]) -> dict[str, Any]:
    """`FACTS` of a run's record.

    Text and start (the checkpoint) are digests; a hub's model is a name. The scored step is that
    of the best model, or the last; commit, versions and machine are those of the last start.
    """
    inputs, settings = record["trajectory"], record.get("settings", {})
    files = inputs.get("contents", {}).get("model_name_or_path", {})
    facts = dict(record)
    facts["text"] = inputs.get("text", {}).get("sha256")
    facts["start"] = inputs.get("start", files.get("model.safetensors"))
    places = []
    for start in starts(record):
        device = (start.get("hardware") or {}).get("device")
        places.append(f"{start.get('commit')} on {device}")
    before = dict.fromkeys(place for place in places if place != places[-1])
    facts["earlier_starts"] = ", ".join(before) or None
    facts["scored_step"] = (record.get("best") or {}).get("step", record.get("steps"))
    if "bf16" in settings:
        facts["precision"] = precision(settings["bf16"])
    first = finished(Path(settings.get("model_name_or_path") or ""))
    if first and first.get("script") == STAGE_ONE:
        facts["stage_one_steps"] = first.get("steps")
    return {name: facts.get(name) for name in FACTS}


def precision(bf16: bool) -> str:
    return "bf16" if bf16 else "float32"


def score(
    folder: Path,
    name: str,
    tasks: Sequence[Task],
    data_dir: str,
    model: str | None,
    **settings: Any,
) -> None:
    """Write `NAME.json` and its examples into a run's folder.

    `model` replaces the folder's model; `settings` are `pooling`, `max_length` and `bf16`.
    """
    encoder, tokenizer = load(model or folder, settings["pooling"], settings["max_length"])
    encode = Encode(encoder.to(device_here()), tokenizer, bf16=settings["bf16"])
    write(folder / f"{name}.json", tasks, data_dir, encode, encode.settings)


def write(
    path: Path, tasks: Sequence[Task], data_dir: str, encode: Encoder, facts: Mapping[str, Any]
) -> None:
    """Score and write the rows, with how the vectors were made, and the examples atomically."""
    results = score_all(encode, tasks, data_dir)
    folder = path.parent
    write_scores(path, results, rows_of(results, folder.parent.name, folder.name, **facts))
    logger.info("%s: scored", path)
