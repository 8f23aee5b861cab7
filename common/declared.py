"""What dataclasses and classes declare, read from their source: a script knows its flags before it imports torch."""

from __future__ import annotations

import argparse
import ast
from functools import cache
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).parents[1]


class Flag(NamedTuple):
    """A field of a dataclass: its type and its default as they are written, and its help."""

    kind: str
    default: str
    help: str

    @property
    def words(self) -> str:
        """The type for readers: `{a,b}` for a choice, `int` for `int | None`."""
        kind = self.kind.removesuffix(" | None")
        if not kind.startswith("Literal["):
            return kind
        return "{" + ",".join(map(str, ast.literal_eval(kind.removeprefix("Literal")))) + "}"


def fields_of(path: Path, name: str) -> dict[str, Flag]:
    """The fields of a dataclass by name, those of its bases in this repository first.

    Args:
        path: the file.
        name: the class.
    """
    statements = [one for found in _lineage(path, name) for one in found.body if isinstance(one, ast.AnnAssign)]
    return {one.target.id: flag for one in statements if (flag := _flag(one)) is not None}


def attribute(path: Path, name: str, wanted: str) -> object:
    """The constant that a class or its nearest base assigns to `wanted`; None where nobody does."""
    found = None
    for statement in (one for kind in _lineage(path, name) for one in kind.body if isinstance(one, ast.Assign)):
        if wanted in {target.id for target in statement.targets if isinstance(target, ast.Name)}:
            found = ast.literal_eval(statement.value)
    return found


def called(path: Path, name: str) -> str:
    """The class whose object a module calls `name`: "X" for `name = X()`."""
    for one in _tree(path).body:
        if isinstance(one, ast.Assign) and isinstance(one.value, ast.Call) and ast.unparse(one.targets[0]) == name:
            return ast.unparse(one.value.func)
    raise LookupError(f"{path}: has no {name}")


def keys_of(path: Path, name: str) -> list[str]:
    """The keys of the dictionary that a module calls `name`, as they are written there."""
    for one in _tree(path).body:
        if ast.unparse(getattr(one, "target", None) or getattr(one, "targets", [one])[0]) == name:
            return [ast.literal_eval(key) for key in one.value.keys]
    raise LookupError(f"{path}: has no {name}")


def add_pooling(parser: argparse.ArgumentParser) -> None:
    """The flag `--pooling` of commands that read any encoder."""
    names = keys_of(ROOT / "models" / "pooling.py", "POOLINGS")
    parser.add_argument(
        "--pooling", choices=names, help="for plain encoders; a model that states its pooling needs none"
    )


def _flag(statement: ast.AnnAssign) -> Flag | None:
    """None for a field that is no flag."""
    if isinstance(statement.value, ast.Call) and ast.unparse(statement.value.func) == "flag":
        default, told = statement.value.args
        written = ast.unparse(default)
        return Flag(ast.unparse(statement.annotation), "" if written == "[]" else written, ast.literal_eval(told))
    given = {}
    default = ast.unparse(statement.value) if statement.value is not None else ""
    if isinstance(statement.value, ast.Call):
        given = {word.arg: word.value for word in statement.value.keywords}
        factory = given.get("default_factory")
        default = ast.unparse(given["default"]) if "default" in given else _made(factory)
    if "init" in given or statement.target.id.startswith("_"):
        return None
    said = given.get("metadata", ast.Dict([], []))
    told = {key.value: value for key, value in zip(said.keys, said.values, strict=True)}
    return Flag(ast.unparse(statement.annotation), default, ast.literal_eval(told.get("help", ast.Constant(""))))


def _made(factory: ast.expr | None) -> str:
    """What a `default_factory` makes, where it is a lambda of a constant."""
    return ast.unparse(factory.body) if isinstance(factory, ast.Lambda) else ""


@cache
def _tree(path: Path) -> ast.Module:
    return ast.parse(path.read_text(encoding="utf-8"))


def _lineage(path: Path, name: str) -> list[ast.ClassDef]:
    """A class behind its bases, as far as their files are in this repository."""
    [found] = [one for one in _tree(path).body if isinstance(one, ast.ClassDef) and one.name == name]
    bases = [_home(path, ast.unparse(base)) for base in reversed(found.bases)]
    return [*(one for base in bases if base for one in _lineage(*base)), found]


def _home(path: Path, base: str) -> tuple[Path, str] | None:
    """The file and name of a base class, `Base` or `module.Base`; None for a class of a library."""
    first, _, last = base.partition(".")
    if any(isinstance(one, ast.ClassDef) and one.name == base for one in _tree(path).body):
        return path, base
    for one in (one for one in _tree(path).body if isinstance(one, ast.ImportFrom)):
        for alias in one.names:
            if first == (alias.asname or alias.name):
                module = f"{one.module}.{alias.name}" if last else one.module
                file = ROOT.joinpath(*module.split(".")).with_suffix(".py")
                return (file, last or alias.name) if file.is_file() else None
    return None
