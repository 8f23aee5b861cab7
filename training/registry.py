"""Which methods there are, and which script trains each. A method is a file of `models/objectives`."""

from __future__ import annotations

import importlib
import pkgutil
from dataclasses import fields

import models.objectives
from common.arguments import ModelArguments, ScoredArguments, SentenceArguments
from common.errors import BadInput
from models.objectives.base import Method
from training.run_arguments import RunArguments

OLD_NAMES = {  # of the methods' own repositories, as docs/from_the_old_repositories.md has them
    "temp": "--temperature",
    "pooler_type": "--pooling",
    "max_seq_length": "--max_length",
    "mlm_probability": "--mask_rate",
    "n_head_layers": "--head_layers",
    "batchnorm": "--projection batch_norm",
    "do_mlm": "--method simcse_mlm",
    "lambda_weight": "--rtd_weight",
    "masking_ratio": "--rtd_mask_rate",
    "evaluation_strategy": "--eval_strategy",
}
SCRIPTS = {False: "run_unsup.py", True: "run_sup.py"}  # by whether the method needs labels


def method_names(labels: bool | None = None) -> list[str]:
    """All methods; with `labels`, only those that train on labelled pairs, or only those that do not."""
    names = [file.name for file in pkgutil.iter_modules(models.objectives.__path__) if file.name != "base"]
    return names if labels is None else [name for name in names if load_method(name).labels == labels]


def load_method(name: str | None, labels: bool | None = None) -> Method:
    """The method of that name; BadInput for an unknown one and, with `labels`, for one of the other script."""
    if name is None:
        known = ", ".join(method_names(labels))
        raise BadInput(f"--method is missing: choose one of {known}, or a --config that names one")
    if name not in method_names():
        known = ", ".join(method_names(labels))
        raise BadInput(f"--method {name}: choose one of {known} (or a --config that names one)")
    method = importlib.import_module(f"models.objectives.{name}").METHOD
    if labels not in (None, method.labels):
        known = ", ".join(method_names(labels))
        raise BadInput(f"--method {name}: {SCRIPTS[method.labels]} trains it; here choose one of {known}")
    return method


def script_of(name: str | None) -> str:
    """The script that trains a method; run_unsup.py, which lists what it knows, for an unknown one."""
    return SCRIPTS[name in method_names() and load_method(name).labels]


def argument_groups(method: Method) -> tuple[type, ...]:
    """The dataclasses whose fields are the flags of a run: model, method, data and training."""
    data = ScoredArguments if method.labels else SentenceArguments
    return ModelArguments, method.arguments, data, RunArguments


def hint(flag: str) -> str:
    """What is known of a flag that the chosen method does not have: other methods do, or it has another name here."""
    if flag in OLD_NAMES:
        return f"here it is {OLD_NAMES[flag]} (docs/from_the_old_repositories.md)"
    having = [name for name in method_names() if flag in {f.name for f in fields(load_method(name).arguments)}]
    return f"a flag of --method {', '.join(having)}" if having else ""
