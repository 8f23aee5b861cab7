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
        BadInput: two models have one label, or one file name: files have - for the / of a label.
    """
    split = []
    for model in models:
        name, equals, path = model.partition("=")
        named = equals and "/" not in name and not Path(model).exists()
        split.append((name, path) if named else (None, model))
    unnamed = [Path(path).absolute().parts for name, path in split if name is None]
    given, labels = {name for name, _ in split}, {}
    for name, path in split:
        parts = Path(path).absolute().parts
        ends = ["/".join(parts[-depth:]) for depth in range(1, len(parts) + 1)]
        alone = [end for depth, end in enumerate(ends, 1) if sum(end == "/".join(o[-depth:]) for o in unnamed) == 1]
        label = name or next((end for end in alone if end not in given), ends[-1])
        if label.replace("/", "-") in {known.replace("/", "-") for known in labels}:
            raise BadInput(f"two models are named '{label}'; rename one with NAME={path}")
        labels[label] = path
    return labels
