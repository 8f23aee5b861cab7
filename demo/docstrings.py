"""The public objects of the installed scientific packages as documents: qualified name and
description.

Packages are only imported. Names come from `__all__` of modules and from the members of public
classes.
"""

from __future__ import annotations

import importlib
import inspect
import re
import warnings
from collections.abc import Iterator
from itertools import dropwhile
from types import ModuleType

PACKAGES = ("numpy", "pandas", "scipy", "sklearn")
_LEAST = 4  # words in a description
# A section heading, such as Parameters; or a note that may print a set, in an order that differs
# from run to run.
_END = re.compile(r"^\S.*\n[-=~]{3,}\s*$|^\.\. deprecated::", re.MULTILINE)


def documents() -> list[tuple[str, str]]:
    """(name, description), every description once, sorted by name.

    Aliases of an object repeat its text. The name with the fewest dots is used, then the shortest.
    """
    names: dict[str, str] = {}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # about deprecated names
        for package in PACKAGES:
            for name, thing in _public(importlib.import_module(package)):
                text = description(
                    getattr(thing, "__name__", name), getattr(thing, "__doc__", None)
                )
                if len(text.split()) >= _LEAST:
                    names[text] = min(
                        name,
                        names.get(text, name),
                        key=lambda name: (name.count("."), len(name), name),
                    )
    return sorted((name, text) for text, name in names.items())


def _public(module: ModuleType) -> Iterator[tuple[str, object]]:
    """The callables of a module, of its public submodules and of its classes, by qualified name."""
    for word in sorted(getattr(module, "__all__", ())):
        try:
            value = getattr(module, word)
        except (
            AttributeError,
            ImportError,
        ):  # must be enabled first, such as scikit-learn's experimental features
            continue
        name = f"{module.__name__}.{word}"
        if isinstance(value, ModuleType):
            if value.__name__ == name:
                yield from _public(value)
        elif callable(value):
            yield name, value
            yield from _members(name, value)


def _members(name: str, value: object) -> Iterator[tuple[str, object]]:
    """Methods and properties of a class, including those inherited from classes of the packages."""
    bases = value.__mro__ if isinstance(value, type) else ()
    members = {
        word: member
        for base in bases[::-1]
        if base.__module__.partition(".")[0] in PACKAGES
        for word, member in vars(base).items()
    }
    for word, member in sorted(members.items()):
        if not word.startswith("_") and (inspect.isroutine(member) or isinstance(member, property)):
            yield f"{name}.{word}", member


def description(own_name: str, docstring: object) -> str:
    """The text before the first section, without the signatures at the start of compiled functions' docstrings."""
    if not isinstance(docstring, str):
        return ""
    paragraphs = _END.split(inspect.cleandoc(docstring), maxsplit=1)[0].split("\n\n")
    signature = re.compile(rf"([\w\s,]+=\s*)?{re.escape(own_name)}\(")
    return " ".join(" ".join(dropwhile(signature.match, paragraphs)).split())
