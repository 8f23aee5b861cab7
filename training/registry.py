"""Which methods there are, and which script trains each: a method is a file in the script's folder."""

from __future__ import annotations

import importlib
import pkgutil
from types import ModuleType

import models.objectives
import models.supervised
from arguments import ScoredArguments, SentenceArguments
from errors import BadInput

SCRIPTS = {  # where each script finds its methods, and what it asks of its data
    "run_unsup.py": (models.objectives, SentenceArguments),
    "run_sup.py": (models.supervised, ScoredArguments),
}


def method_names(script: str) -> list[str]:
    """The methods of a script."""
    return [module.name for module in pkgutil.iter_modules(SCRIPTS[script][0].__path__) if module.name != "base"]


def script_of(method: str | None) -> str:
    """The script that trains a method; run_unsup.py, which says what it knows, for an unknown one."""
    return next((script for script in SCRIPTS if method in method_names(script)), "run_unsup.py")


def load_method(script: str, name: str | None) -> ModuleType:
    """The module of a script's method; BadInput with the known ones otherwise."""
    known = method_names(script)
    if name not in known:
        raise BadInput(f"--method {name}: choose one of {', '.join(known)} (or a --config that names one)")
    return importlib.import_module(f"{SCRIPTS[script][0].__name__}.{name}")
