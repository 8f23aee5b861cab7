"""Which methods there are, and which script trains each: a method is a file in the script's folder."""

from __future__ import annotations

import importlib
import pkgutil
from dataclasses import fields
from types import ModuleType

import models.objectives
import models.supervised
from common.arguments import ScoredArguments, SentenceArguments
from common.errors import BadInput

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
    if name is None:
        raise BadInput(f"--method is missing: choose one of {', '.join(known)}, or a --config that names one")
    if name not in known:
        raise BadInput(f"--method {name}: choose one of {', '.join(known)} (or a --config that names one)")
    return importlib.import_module(f"{SCRIPTS[script][0].__name__}.{name}")


def hint(flag: str) -> str:
    """What is known of a flag that the chosen method does not have: other methods do, or it has another name here."""
    if flag in OLD_NAMES:
        return f"here it is {OLD_NAMES[flag]} (docs/from_the_old_repositories.md)"
    every = [(script, name) for script in SCRIPTS for name in method_names(script)]
    having = [name for script, name in every if flag in {f.name for f in fields(load_method(script, name).Arguments)}]
    return f"a flag of --method {', '.join(having)}" if having else ""
