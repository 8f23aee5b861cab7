"""Load methods: a method is a file of `models/objectives`."""

from __future__ import annotations

import importlib

from common.arguments import ModelArguments, ScoredArguments, SentenceArguments
from models.objectives.base import Method
from training.flags import SCRIPTS, method_file, method_names
from training.run_arguments import RunArguments


def load_method(name: str | None, labels: bool | None = None) -> Method:
    """The method of that name; raises like `method_file`."""
    return importlib.import_module(f"models.objectives.{method_file(name, labels).stem}").METHOD


def script_of(name: str | None) -> str:
    """The script that trains a method; run_unsup.py, which lists its methods, if unknown."""
    return SCRIPTS[name in method_names(labels=True)]


def argument_groups(method: Method) -> tuple[type, ...]:
    """The dataclasses whose fields are the flags of a run: model, method, data and training."""
    data = ScoredArguments if method.labels else SentenceArguments
    return ModelArguments, method.arguments, data, RunArguments
