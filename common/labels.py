"""Names for the models of a command: `NAME=PATH`, or the end of the path."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from common.errors import BadInput


def labelled(models: Sequence[str]) -> dict[str, str]:
    """Label -> folder or hub id, in the order given.

    `NAME=PATH` names a model; the others get the shortest unique end of their path. The name of an existing folder is
    a path, even with an equals sign.

    Raises:
        BadInput: a name given twice, an empty name or path, or one folder given twice without names.
    """
    split = [_split(model) for model in models]
    given = [name for name, _ in split if name is not None]
    unnamed = [Path(path).absolute().parts for name, path in split if name is None]
    labels: dict[str, str] = {}
    for name, path in split:
        label = name if name is not None else _shortest(Path(path).absolute().parts, unnamed, given)
        if label is None or label in labels:
            raise BadInput(f"two models are called '{label or path}'; tell them apart by NAME={path}")
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
    """The shortest end of a path that is unique and not taken; None where every end is shared."""
    for depth in range(1, len(parts) + 1):
        label = "/".join(parts[-depth:])
        if label not in taken and sum(other[-depth:] == parts[-depth:] for other in others) == 1:
            return label
    return None
