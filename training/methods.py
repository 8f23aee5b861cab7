"""The methods: files of models/objectives, each imported when it is asked for."""

from __future__ import annotations

import importlib
import pkgutil
from typing import TYPE_CHECKING

import models.objectives
from common.errors import BadInput
from common.flags import nearest

if TYPE_CHECKING:
    from models.objectives.base import Method

STAGE_ONE, UNSUP, SUP = "run_pretrain_aux.py", "run_unsup.py", "run_sup.py"


def method_names(labels: bool | None = None) -> list[str]:
    """All methods; with `labels`, which imports all, those that need labelled pairs or do not.

    A file whose name begins with an underscore is a helper of methods.
    """
    files = [file.name for file in pkgutil.iter_modules(models.objectives.__path__)]
    names = [name for name in files if name != "base" and not name.startswith("_")]
    return [name for name in names if labels is None or load_method(name).labels == labels]


def load_method(name: str | None, script: str | None = None) -> Method:
    """The method of that name; BadInput if it is missing, unknown or of another script."""
    names = method_names()
    if name not in names:
        choices = f"choose one of {', '.join(names)} (or a --config that names one)"
        raise BadInput(f"--method {name or 'is missing'}: {nearest(name or '', names)}{choices}")
    method = importlib.import_module(f"models.objectives.{name}").METHOD
    if script and script != (needed := SUP if method.labels else UNSUP):
        raise BadInput(f"--method {name}: train it with {needed}")
    return method


def script_of(name: str | None) -> str:
    """The script that trains a method; stage 1's without one."""
    if name is None:
        return STAGE_ONE
    return SUP if load_method(name).labels else UNSUP
