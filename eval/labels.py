"""Names for the models of a command: `NAME=PATH`, or the end of the path."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from common.errors import BadInput


def labelled(models: Sequence[str]) -> dict[str, str]:
    """Map labels to folders or hub ids, in the order given.

    `NAME=PATH` labels a model; the others are labelled by the shortest unique end of their path. An existing folder is
    a path, even if its name has an equals sign.

    Raises:
        BadInput: a repeated name, an empty name or path, or a folder given twice without names.
    """
    split = [_split(model) for model in models]
    given = [name for name, _ in split if name is not None]
    unnamed = [Path(path).absolute().parts for name, path in split if name is None]
    labels: dict[str, str] = {}
    for name, path in split:
        label = name if name is not None else _shortest(Path(path).absolute().parts, unnamed, given)
        if label is None or label in labels:
            raise BadInput(f"two models are named '{label or path}'; rename one with NAME={path}")
        labels[label] = path
    return labels


def _split(model: str) -> tuple[str | None, str]:
    name, equals, path = model.partition("=")
    if not equals or Path(model).exists() or "/" in name:
        return None, model
    if not name or not path:
        raise BadInput(f"model '{model}': NAME=PATH needs a name and a path")
    return name, path


def _shortest(parts: Sequence[str], others: Sequence[Sequence[str]], taken: Sequence[str]) -> str | None:
    """Return the shortest end of a path that is unique and not taken, or None."""
    for depth in range(1, len(parts) + 1):
        label = "/".join(parts[-depth:])
        if label not in taken and sum(other[-depth:] == parts[-depth:] for other in others) == 1:
            return label
    return None
