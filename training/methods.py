"""The methods: files of models/objectives, each imported when it is asked for."""

from __future__ import annotations

import difflib
import importlib
import pkgutil
from typing import TYPE_CHECKING

import models.objectives
from common.errors import BadInput

if TYPE_CHECKING:
    from models.objectives.base import Method

STAGE_ONE, UNSUP, SUP = "run_pretrain_aux.py", "run_unsup.py", "run_sup.py"


def method_names(labels: bool | None = None) -> list[str]:
    """All methods; with `labels`, those that do (True) or do not (False) need labelled pairs, which
    imports all.

    A file whose name begins with an underscore is a helper of methods.
    """
    files = [file.name for file in pkgutil.iter_modules(models.objectives.__path__)]
    names = [name for name in files if name != "base" and not name.startswith("_")]
    return [name for name in names if labels is None or load_method(name).labels == labels]


def load_method(name: str | None, script: str | None = None) -> Method:
    """The method of that name; BadInput if it is missing, unknown or of another script than this one."""
    names = method_names()
    if name not in names:
        guess = "".join(
            f"did you mean '{match}'? "
            for match in difflib.get_close_matches(name or "", names, n=1)
        )
        choices = f"choose one of {', '.join(names)} (or a --config that names one)"
        raise BadInput(f"--method {name or 'is missing'}: {guess}{choices}")
    method = importlib.import_module(f"models.objectives.{name}").METHOD
    if script and script != (needed := SUP if method.labels else UNSUP):
        raise BadInput(f"--method {name}: train it with {needed}")
    return method


def script_of(name: str | None) -> str:
    """The script that trains a method; stage 1's without one."""
    if name is None:
        return STAGE_ONE
    return SUP if load_method(name).labels else UNSUP
