"""The public objects of the installed scientific packages as documents: a qualified name, and what its docstring says.

Nothing of a package runs but its import: names are those of `__all__`, of modules, and the members of public classes.
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
_LEAST = 4  # words of a description
_HEADING = re.compile(r"^\S.*\n[-=~]{3,}\s*$", re.MULTILINE)  # of a section, such as Parameters


def documents() -> list[tuple[str, str]]:
    """(name, description), every description once, in the order of the names.

    Other names of an object repeat its text. Of all names the one with the fewest dots stands, then the shortest.
    """
    names: dict[str, str] = {}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of names that are about to go
        for package in PACKAGES:
            for name, thing in _public(importlib.import_module(package)):
                text = description(getattr(thing, "__name__", name), getattr(thing, "__doc__", None))
                if len(text.split()) >= _LEAST:
                    names[text] = min(name, names.get(text, name), key=lambda one: (one.count("."), len(one), one))
    return sorted((name, text) for text, name in names.items())


def _public(module: ModuleType) -> Iterator[tuple[str, object]]:
    """The callables of a module, of its public submodules and of its classes, by qualified name."""
    for word in sorted(getattr(module, "__all__", ())):
        try:
            value = getattr(module, word)
        except (AttributeError, ImportError):  # what must be enabled first, as scikit-learn's experiments
            continue
        name = f"{module.__name__}.{word}"
        if isinstance(value, ModuleType):
            if value.__name__ == name:
                yield from _public(value)
        elif callable(value):
            yield name, value
            yield from _members(name, value)


def _members(name: str, value: object) -> Iterator[tuple[str, object]]:
    """Methods and properties of a class, those that it inherits within the packages too."""
    bases = value.__mro__ if isinstance(value, type) else ()
    found = {word: member for base in bases[::-1] if base.__module__.partition(".")[0] in PACKAGES
             for word, member in vars(base).items()}  # fmt: skip
    for word, member in sorted(found.items()):
        if not word.startswith("_") and (inspect.isroutine(member) or isinstance(member, property)):
            yield f"{name}.{word}", member


def description(own_name: str, docstring: object) -> str:
    """What stands before the first section, without the signatures that compiled functions begin with."""
    if not isinstance(docstring, str):
        return ""
    paragraphs = _HEADING.split(inspect.cleandoc(docstring), maxsplit=1)[0].split("\n\n")
    signature = re.compile(rf"([\w\s,]+=\s*)?{re.escape(own_name)}\(")
    return " ".join(" ".join(dropwhile(signature.match, paragraphs)).split())
