"""The flags of the training scripts without importing torch: methods, --help, and checks of names."""

from __future__ import annotations

import difflib
import importlib
import pkgutil
from collections.abc import Collection, Mapping, Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import models.objectives
from common.command_line import check_words, peek, split_flag
from common.declared import ROOT, Flag, attribute, called, fields_of
from common.errors import BadInput
from common.flags import Parser
from common.model_place import check_place
from common.streams import show
from training.finished import finished, inputs_of
from training.refused import REFUSED

if TYPE_CHECKING:
    from models.objectives.base import Method

SCRIPTS = {False: "run_unsup.py", True: "run_sup.py"}  # by whether the method needs labels
OLD_NAMES = {  # flags of the methods' original repositories, see docs/from_the_old_repositories.md
    "temp": "--temperature",
    "pooler_type": "--pooling",
    "max_seq_length": "--max_length",
    "mlm_probability": "--mask_rate",
    "n_head_layers": "--head_layers",
    "batchnorm": "--projection batch_norm",
    "do_mlm": "--method infocse or --method simcse_mlm",
    "mlm_weight": "--aux_weight W or --method simcse_mlm",
    "lambda_weight": "--rtd_weight",
    "masking_ratio": "--rtd_mask_rate",
    "evaluation_strategy": "--eval_strategy",
    "mlp_only_train": "--pooling cls_before_pooler",
    "mlm_eval": "--aux_frozen_eval",
}
_DROPPED = {
    "overwrite_output_dir": "remove the folder instead",
    "pad_to_max_length": "not needed: a batch is padded to its longest text",
    "late_mlm": "not needed: always on",
}
_SYNONYMS = {  # common guesses for a flag
    "train_file": "dataset data train_data train_dataset text corpus input",
    "dev_file": "eval_file dev_data valid_file validation_file eval_data",
    "model_name_or_path": "model model_name base_model checkpoint pretrained",
    "output_dir": "output out save_dir output_path",
    "per_device_train_batch_size": "batch_size bs train_batch_size",
    "num_train_epochs": "epochs epoch num_epochs n_epochs",
    "max_steps": "steps num_steps train_steps",
    "learning_rate": "lr",
    "max_length": "max_len seq_length max_seq_len max_tokens",
    "warmup_steps": "warmup warmup_ratio",
    "gradient_accumulation_steps": "grad_accum accumulation_steps",
    "dataloader_num_workers": "num_workers workers",
    "use_cpu": "cpu no_cuda device",
    "temperature": "tau",
    "aux_weight": "lambda",
    "report_to": "wandb tensorboard",
    "dry_run": "plan",
}
_COMMON = """method model_name_or_path config_name train_file text_column columns max_length pooling dev dev_file
    test_tasks output_dir per_device_train_batch_size learning_rate num_train_epochs max_steps eval_steps mask_rate
    skip_from bf16 use_cpu seed dry_run""".split()
_HELP = {"-h", "--help", "--help_all"}
_LIBRARY = Path(find_spec("transformers").origin).with_name("training_args.py")


class Checked(NamedTuple):
    """A checked command: the hash of its inputs, for the record, and its run's folder if that has finished."""

    inputs: str | None
    finished: str | None


def method_files() -> dict[str, Path]:
    """The file of every method, by the method's name."""
    found = [(file.module_finder.path, file.name) for file in pkgutil.iter_modules(models.objectives.__path__)]
    return {name: Path(folder, f"{name}.py") for folder, name in found if name != "base"}


def method_names(labels: bool | None = None) -> list[str]:
    """All methods, or only those that do (True) or do not (False) need labelled pairs."""
    return [name for name, file in method_files().items() if labels in (None, _takes_labels(file))]


def method_file(name: str | None, labels: bool | None) -> Path:
    """A method's file; BadInput if the name is missing, unknown or, with `labels`, of the other script."""
    choices, files = ", ".join(method_names(labels)), method_files()
    if name is None:
        raise BadInput(f"--method is missing: choose one of {choices}, or a --config that names one")
    if name not in files:
        guess = "".join(f"did you mean '{match}'? " for match in difflib.get_close_matches(name, files, n=1))
        raise BadInput(f"--method {name}: {guess}choose one of {choices} (or a --config that names one)")
    if labels not in (None, needs_labels := _takes_labels(files[name])):
        raise BadInput(f"--method {name}: use {SCRIPTS[needs_labels]} for it; here choose one of {choices}")
    return files[name]


def load_method(name: str | None, labels: bool | None = None) -> Method:
    """The method of that name; raises like `method_file`. Its module imports torch."""
    return importlib.import_module(f"models.objectives.{method_file(name, labels).stem}").METHOD


def script_of(name: str | None) -> str:
    """The script that trains a method; run_unsup.py, which lists its methods, if unknown."""
    return SCRIPTS[name in method_names(labels=True)]


def _takes_labels(file: Path) -> bool:
    return bool(attribute(file, called(file, "METHOD"), "labels"))


def hint(flag: str, known: Collection[str]) -> str:
    """Advice on a flag that is not among the `known` ones: its name here, or the methods that have it."""
    if flag in OLD_NAMES:
        return f"here it is {OLD_NAMES[flag]} (docs/from_the_old_repositories.md)"
    if flag in _DROPPED:
        return f"{_DROPPED[flag]} (docs/from_the_old_repositories.md)"
    matches = [name for name, synonyms in _SYNONYMS.items() if flag in synonyms.split() and name in known]
    if matches:
        return f"did you mean '--{matches[0]}'?"
    methods = [name for name, file in method_files().items() if flag in fields_of(file, "Arguments")]
    return f"a flag of --method {', '.join(methods)}" if methods else ""


def declared(*groups: str, method: str | None = None) -> dict[str, Flag]:
    """The flags of a script: those of these dataclasses of `common.arguments`, of the method and of the Trainer."""
    parts = [fields_of(ROOT / "common" / "arguments.py", group) for group in groups]
    parts += [fields_of(method_files()[method], "Arguments")] if method else []
    parts += [fields_of(_LIBRARY, "TrainingArguments")]
    parts += [fields_of(ROOT / "training" / "run_arguments.py", "RunArguments")]
    return {name: flag for part in parts for name, flag in part.items()}


def check_sentence_command(argv: Sequence[str], description: str, labels: bool) -> Checked:
    """`check_command` for run_unsup.py and run_sup.py, whose flags depend on the method."""
    method = peek(argv, "method")
    if method or not _HELP & {*argv}:
        method_file(method, labels)
    flags = declared("ModelArguments", "ScoredArguments" if labels else "SentenceArguments", method=method)
    own = fields_of(method_files()[method], "Arguments") if method else {}
    names = f"methods: {', '.join(method_names(labels))}; --method NAME --help shows the flags of one"
    return check_command(argv, f"{description}\n{names}", SCRIPTS[labels], flags, own)


def check_command(
    argv: Sequence[str], description: str, script: str, flags: Mapping[str, Flag], own: Collection[str] = ()
) -> Checked:
    """Answer --help, check the names of flags and look for a finished run, before any slow import.

    Args:
        argv: the command line.
        description: of the script.
        script: its name.
        flags: all flags of the script.
        own: the flags of its method, which --help shows along with the common ones.

    Raises:
        BadInput: an unknown or repeated flag or configuration key; the model does not exist.
        CheckpointRefused: the result of the finished run has changed.
        SystemExit: after printing --help.
    """
    if requested := _HELP & {*argv}:
        shown = flags.keys() - REFUSED.keys() if "--help_all" in requested else {*_COMMON, *own}
        show(_help(script, description, {name: flag for name, flag in flags.items() if name in shown}, own))
        raise SystemExit(0)
    words = check_words(argv, {name: flag.kind for name, flag in flags.items()}, hint)
    _refuse_idle_epochs(argv)
    inputs, folder = inputs_of(words, flags), peek(argv, "output_dir")
    if finished(folder, inputs):
        return Checked(inputs, folder)
    if model := peek(argv, "model_name_or_path"):
        check_place(model)
    return Checked(inputs, None)


def _refuse_idle_epochs(argv: Sequence[str]) -> None:
    """Refuse epochs on the command line beside a number of steps, also of the configuration: steps win."""
    epochs, steps = split_flag(argv, "num_train_epochs")[0], peek(argv, "max_steps")
    if epochs is not None and steps not in (None, "-1"):
        raise BadInput(f"--num_train_epochs {epochs}: has no effect beside --max_steps {steps}; add --max_steps=-1")


def _help(script: str, description: str, flags: Mapping[str, Flag], own: Collection[str]) -> str:
    usage = f"python {script} [--config FILE] [--flag value ...]"
    parser = Parser(usage=usage, description=description, add_help=False)
    general, method = parser.add_argument_group("flags"), parser.add_argument_group("flags of the method")
    general.add_argument("--config", metavar="FILE", help="YAML file of flags; flags on the command line win")
    for name, flag in flags.items():
        default = f" (default: {flag.default})" if flag.default not in ("", "None") else ""
        text = f"{flag.help}{default}".replace("%%", "%").replace("%", "%%")  # the library's help has %%
        (method if name in own else general).add_argument(f"--{name}", metavar=flag.words, help=text)
    general.add_argument(
        "--help_all", action="store_true", help="show every flag, including those of transformers that apply here"
    )
    return parser.format_help().rstrip()
