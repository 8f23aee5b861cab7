"""Names for the models of a command: `NAME=PATH`, or the last part of the path."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from common.errors import BadInput


def labelled(models: Sequence[str]) -> dict[str, str]:
    """Map labels to folders or hub ids, in the order given.

    An existing folder may have an equals sign in its name.

    Raises:
        BadInput: two models have one label.
    """
    labels: dict[str, str] = {}
    for model in models:
        name, equals, path = model.partition("=")
        if not equals or "/" in name or Path(model).exists():
            name, path = Path(model).absolute().name, model
        if name in labels:
            raise BadInput(f"two models are named '{name}'; rename one with NAME={path}")
        labels[name] = path
    return labels
