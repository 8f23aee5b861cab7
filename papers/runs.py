"""The run that fills a row: which one it is, how it differs from the paper's, and how it is trained and scored."""

from __future__ import annotations

import logging
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields, replace
from functools import cache
from pathlib import Path
from typing import Any

from baselines import __main__ as baselines
from common.arguments import NLI_COLUMNS
from common.errors import BadInput, ProjectError, Stopped
from common.files import ROOT, digest, find_files
from data.lines import content_hash
from eval.compare.sides import backbone_of
from eval.encode import Encode, Encoder, device_here
from eval.scores import rows_of, write_scores
from eval.tasks import Task, score_all
from export.facts import BASELINE
from models.encoder import load_encoder
from models.loading import load_config
from papers.specification import Table, TableRow
from training.folder import RUN_FILE, discard, read_run, write_run
from training.methods import SUP, load_method, script_of
from training.provenance import contents, provenance
from training.settings import read_config, words_of

logger = logging.getLogger(__name__)
CONFIGS = ROOT / "configs"
FACTS = (
    "steps",
    "commit",
    "versions",
    "hardware",
    "text",
    "start",
)  # facts about a run in a row of results
# below DATA_DIR; the file of SBERT's 61.32, which InfoCSE and ConSERT copy
GLOVE = "word_vectors/glove.6B.300d.txt"
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


@dataclass(frozen=True)
class RunPlan:
    """How to fill a row: train a configuration once per seed, evaluate a model untrained, or fit a
    baseline to it.

    Attributes:
        name: prefix of the folder names.
        flags: flags of the script, without seed, data and output paths; empty for an untrained
            model.
        starts_from: the plan whose run with the same seed this one starts from.
        model: of an untrained model or a baseline; a file, for word vectors.
        pooling: of an untrained model.
        differences: from the paper's runs: backbone, initial model, text, budget.
        baseline: command of `python -m baselines`.
    """

    name: str
    flags: dict[str, str]
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
        config = read_once(self.flags["config"]) if "config" in self.flags else {}
        return {**config, **self.flags} | ({"model_name_or_path": self.model} if self.model else {})

    def folder(self, choice: Choice, seed: int) -> Path:
        """The run's folder: the configuration, a hash of everything that determines its weights, the seed."""
        settings = self.settings() | {"config": self.name, "output_dir": None}
        start = self.starts_from.folder(choice, seed).name if self.starts_from else None
        decisive = dict(sorted(settings.items())) if self.flags else None
        hashed = digest([decisive, start, self.model, self.pooling, choice.bf16])[:10]
        end = f"_seed-{self.flags.get('seed', seed)}" if self.seeded else ""
        return Path(choice.runs) / f"{self.name}_{hashed}{end}"

    def folders(self, choice: Choice) -> dict[int, Path]:
        """Seed -> folder; without a random draw there is only the first seed."""
        seeds = choice.seeds if self.seeded else choice.seeds[:1]
        return {seed: self.folder(choice, seed) for seed in seeds}

    def command(self, choice: Choice, seed: int) -> list[str]:
        """The script and the flags of the run; empty for an untrained model."""
        if self.baseline:
            model = str(self.starts_from.folder(choice, seed)) if self.starts_from else self.model
            flags = self.flags | ({"seed": seed} if self.baseline == "flow" else {})
            flags |= {"data_dir": choice.data_dir}
            if not self.scored_at_once:
                flags["output"] = self.folder(choice, seed)
            return ["-m", "baselines", self.baseline, *filter(None, [model]), *words_of(flags)]
        if not self.flags:
            return []
        flags = {
            "data_dir": choice.data_dir,
            "seed": str(seed),
            "bf16": str(choice.bf16).lower(),
            **self.flags,
        }
        if self.starts_from:
            flags["model_name_or_path"] = str(self.starts_from.folder(choice, seed))
        if method := self.settings().get("method"):
            flags["test_tasks"] = (
                "none"  # scored afterwards, so that tasks can be added to a finished run
            )
        flags |= {
            "output_dir": str(self.folder(choice, seed)),
            "use_cpu": str(device_here() == "cpu").lower(),
        }
        return [script_of(method), *words_of(flags | {"disable_tqdm": "true"})]

    def train(self, choice: Choice, seed: int) -> None:
        """Train or resume the run, after the run it starts from; for an untrained model, write its
        record.

        Raises:
            ProjectError: the script failed; it has printed the reason. The error has its exit code.
        """
        folder = self.folder(choice, seed)
        if finished(folder):
            return
        if self.starts_from:
            self.starts_from.train(choice, seed)
        if self.baseline:
            if not self.scored_at_once and not (folder / BASELINE).is_file():
                launch(*self.command(choice, seed))
            text = None
            if "train_file" in self.flags:
                text = content_hash(find_files([self.flags["train_file"]], choice.data_dir))
            record_untrained(folder, provenance(), self.model, text)
        elif self.flags:
            launch(*self.command(choice, seed))
            discard(folder, finished(folder).get("run_id"))
        else:
            record_untrained(
                folder, {"model": self.model, "pooling": self.pooling, **provenance()}, self.model
            )

    def score(self, choice: Choice, seed: int, tasks: Mapping[str, Sequence[Task]]) -> None:
        """Write the missing scores files of the run."""
        folder = self.folder(choice, seed)
        missing = [name for name in tasks if not (folder / f"{name}.json").is_file()]
        if missing and self.scored_at_once:
            encode, facts = baselines.fitted(self.command(choice, seed)[2:])
            for name in missing:
                write(folder / f"{name}.json", tasks[name], choice.data_dir, encode, facts)
            return
        for name in missing:
            longest = SEARCH_LENGTH if name.startswith("search-") else None
            settings = {"pooling": self.pooling, "max_length": longest, "bf16": choice.bf16}
            model = None if self.baseline else self.model
            score(folder, name, tasks[name], choice.data_dir, model, **settings)


def plan_of(table: Table, row: TableRow, choice: Choice) -> RunPlan | str:
    """The plan of a row, or why it cannot be run: only published, no configuration, no model, no text."""
    if row.published_only:
        return f"published only: {row.published_only}"
    backbone = choice.backbone or row.backbone
    if backbone != row.backbone and backbone in {other.backbone for other in table.rows}:
        return f"not selected: the row's backbone is {row.backbone}"
    if row.evaluate:
        return _untrained(row, backbone, choice.model)
    first = None
    if row.after:
        first = _trained(replace(row, config=row.after, overrides={}), backbone, choice, None)
    if isinstance(first, str):
        return first
    return (_fitted if row.baseline else _trained)(row, backbone, choice, first)


def _untrained(row: TableRow, backbone: str, model: str | None) -> RunPlan | str:
    plain = _plain_model(backbone)
    if not (model or plain):
        return _no_model(backbone)
    difference = model_difference(model or plain, plain, backbone, row.backbone)
    name = f"untrained-{backbone}-{row.evaluate}"
    return RunPlan(
        name, {}, None, model or plain, row.evaluate, (difference,) if difference else ()
    )


def _fitted(row: TableRow, backbone: str, choice: Choice, first: RunPlan | None) -> RunPlan | str:
    """The plan of a baseline, fitted to the text of the row's configuration; or why there is none.

    Word vectors are those of GloVe's file if DATA_DIR has it, otherwise they are learnt from the
    text.
    """
    config = config_path(row.config, backbone)
    if not config.is_file():
        return f"no config: configs/{config.name}"
    settings, words = read_once(str(config)), row.baseline == "word_vectors"
    labelled = script_of(settings["method"]) == SUP
    text = (
        settings.get("train_file") if labelled else choice.train_file or settings.get("train_file")
    )
    plain = _plain_model(backbone)
    model = None if first or words else choice.model or plain
    if not (model or first or words):
        return _no_model(backbone)
    if words and (file := Path(choice.data_dir) / GLOVE).is_file():
        return RunPlan(row.baseline, {}, None, str(file), baseline=row.baseline)
    reading = (
        {"text_column": list(NLI_COLUMNS)}
        if labelled
        else {"columns": settings.get("columns", "1")}
    )
    differences = first.differences if first else ()
    given = {"train_file": text} | ({"model_name_or_path": model} if model else {})
    differences += _differences(
        given, config_path(row.config, row.backbone), backbone, row.backbone
    )
    differences = (
        (f"word vectors learnt from {text}, not GloVe's",)
        if words
        else tuple(dict.fromkeys(differences))
    )
    flags = {**row.overrides, "train_file": text, **reading}
    return RunPlan(
        f"{row.baseline}-{config.stem}", flags, first, model, None, differences, row.baseline
    )


def _trained(row: TableRow, backbone: str, choice: Choice, first: RunPlan | None) -> RunPlan | str:
    """The plan of a row's configuration on a backbone, starting from `first` if given; or why there is none."""
    config = config_path(row.config, backbone)
    if not config.is_file():
        return f"no config: configs/{config.name}"
    settings = read_once(str(config))
    flags = {name: value for name, value in row.overrides.items() if settings.get(name) != value}
    if first is None:
        flags |= start_flags(
            config, flags, choice.model or _plain_model(backbone), choice.stage_one
        )
    if choice.train_file and script_of(settings["method"]) == "run_unsup.py":
        flags["train_file"] = choice.train_file
    flags |= {"max_steps": str(choice.steps)} if choice.steps else {}
    if first is None and "model_name_or_path" not in settings | flags:
        return _no_model(backbone)
    if "train_file" not in settings | flags:
        return f"no text: configs/{config.name} names none; give --train_file"
    differences = first.differences if first else ()
    differences += _differences(
        settings | flags, config_path(row.config, row.backbone), backbone, row.backbone
    )
    return RunPlan(
        config.stem,
        flags | {"config": str(config)},
        first,
        differences=tuple(dict.fromkeys(differences)),
    )


def config_path(method: str, backbone: str) -> Path:
    """configs/METHOD-BACKBONE.yaml; a word that ends METHOD and starts BACKBONE appears once (is-bert-base)."""
    last, first = method.rpartition("-")[2], backbone.partition("-")[0]
    method = method.removesuffix(f"-{last}") if last == first else method
    return CONFIGS / f"{method}-{backbone}.yaml"


def start_flags(
    config: Path, overrides: Mapping[str, str], model: str | None, stage_one: str | None
) -> dict[str, str]:
    """Flags for the initial models; none to use those of the configuration.

    Args:
        config: a configuration of a training script.
        overrides: flags that override it.
        model: initial model of methods without a first stage, and generator of methods that have
            one.
        stage_one: stage 1 run, InfoCSE's initial model, unless `aux_init` initialises the head in
            another way.
    """
    settings = {**read_once(str(config)), **overrides}
    method = settings.get("method")  # none in a stage 1
    known = {f.name for f in fields(load_method(method).arguments)} if method else set()
    needs_head = "aux_init" in known and settings.get("aux_init", "checkpoint") == "checkpoint"
    initial = stage_one if needs_head else model
    flags = {"model_name_or_path": initial} if initial else {}
    if model and "generator" in known and "generator" not in settings:
        flags["generator"] = model
    return flags


def _plain_model(backbone: str) -> str | None:
    """The initial model of a backbone's methods without a first stage."""
    path = CONFIGS / f"simcse-{backbone}.yaml"
    return read_once(str(path)).get("model_name_or_path") if path.is_file() else None


def _no_model(backbone: str) -> str:
    return f"no model: no configuration names an initial model for {backbone}; give --model"


def _differences(
    settings: Mapping[str, Any], paper: Path, backbone: str, papers: str
) -> tuple[str, ...]:
    """How a run differs from the paper's in backbone, initial model, text and budget, according to
    the configurations.

    Args:
        settings: of the run; without `model_name_or_path` if it starts from another run of the
            table.
        paper: the method's configuration for the paper's backbone, which may not exist.
        backbone: of the run.
        papers: the paper's backbone.
    """
    theirs = read_once(str(paper)) if paper.is_file() else {}
    usual = theirs.get("model_name_or_path")
    differences = [
        model_difference(settings.get("model_name_or_path", usual), usual, backbone, papers)
    ]
    if theirs.get("train_file", settings["train_file"]) != settings["train_file"]:
        differences.append("other text")
    if settings.get("max_steps", "-1") != theirs.get("max_steps", "-1"):
        differences.append("other budget")
    return tuple(filter(None, differences))


def model_difference(
    model: str | None, usual: str | None, backbone: str, papers: str
) -> str | None:
    """How an initial model differs from the paper's, `usual`: by size if it is a local folder, otherwise by name."""
    if backbone != papers:
        return "other backbone"
    if model and (Path(model) / "config.json").is_file():
        return (
            None
            if (backbone_of(load_config(model)) or "").startswith(papers)
            else "other initial model"
        )
    return None if model == usual else "initial model not compared"


def load_all(tasks: Mapping[str, Sequence[Task]], data_dir: str) -> None:
    """Read all test data, so that missing data is an error now and not after the training."""
    for some in tasks.values():
        for task in some:
            task.load(data_dir)


def launch(script: str, *argv: str) -> None:
    """Run a training script, or with `-m` a module; when this process is stopped, it stops first.

    Raises:
        ProjectError: it failed; the error has its exit code.
    """
    script_path = script if script == "-m" else str(ROOT / script)
    command = [sys.executable, script_path, *argv]
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
    """Write a record like that of a finished run, for the scores of an untrained model or of a
    baseline.

    `text` is the sha256 of the text that a baseline was fitted to.
    """
    inputs: dict[str, Any] = {"contents": contents({"model_name_or_path": model})}
    inputs |= {"text": {"sha256": text}} if text else {}
    write_run(folder, {"status": "finished", "trajectory": inputs, "steps": 0, **facts})


def finished(folder: Path) -> dict[str, Any] | None:
    """The record of the run in a folder if it has finished."""
    record = read_run(folder) if (folder / RUN_FILE).is_file() else {}
    return record if record.get("status") == "finished" else None


def facts_of(record: Mapping[str, Any]) -> dict[str, Any]:
    """`FACTS` of a run's record; text and start (the initial model) are digests; a hub's model is a name."""
    inputs = record["trajectory"]
    files = inputs.get("contents", {}).get("model_name_or_path", {})
    start = inputs.get("start", files.get("model.safetensors"))
    facts = record | {"text": inputs.get("text", {}).get("sha256"), "start": start}
    return {name: facts.get(name) for name in FACTS}


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
    encoder, tokenizer = load_encoder(
        model or str(folder), settings["pooling"], settings["max_length"]
    )
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
