"""Declarations of classes, read from their source: a script knows its flags before it imports torch."""

from __future__ import annotations

import ast
from functools import cache
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).parents[1]


_NUMBERS = {  # types of common.ranges
    "Weight": "float>=0", "Positive": "float>0", "Rate": "0<=float<1", "Share": "0<float<1", "Count": "int>=1",
    "CountOrZero": "int>=0",
}  # fmt: skip


class Flag(NamedTuple):
    """A dataclass field: its type and default as source text, and its help."""

    kind: str
    default: str
    help: str

    @property
    def words(self) -> str:
        """The type as --help shows it: `{a,b}` for a choice, `int` for `int | None`, `str ...` for `list[str]`."""
        kind, many = self.kind.removesuffix(" | None"), ""
        if kind.startswith("list["):
            kind, many = kind[len("list[") : -1], " ..."
        if not kind.startswith("Literal["):
            return _NUMBERS.get(kind, kind) + many
        return "{" + ",".join(map(str, ast.literal_eval(kind.removeprefix("Literal")))) + "}"


def fields_of(path: Path, name: str) -> dict[str, Flag]:
    """Return the fields of the dataclass `name` in the file `path`; those of bases in this repository come first."""
    statements = [line for kind in _lineage(path, name) for line in kind.body if isinstance(line, ast.AnnAssign)]
    return {line.target.id: flag for line in statements if (flag := _flag(line)) is not None}


def attribute(path: Path, name: str, wanted: str) -> object:
    """Return the constant that a class or its nearest base assigns to `wanted`, or None."""
    value = None
    for statement in (line for kind in _lineage(path, name) for line in kind.body if isinstance(line, ast.Assign)):
        if wanted in {target.id for target in statement.targets if isinstance(target, ast.Name)}:
            value = ast.literal_eval(statement.value)
    return value


def called(path: Path, name: str) -> str:
    """Return the class that a module instantiates as `name`: "X" for `name = X()`."""
    for line in _tree(path).body:
        if isinstance(line, ast.Assign) and isinstance(line.value, ast.Call) and ast.unparse(line.targets[0]) == name:
            return ast.unparse(line.value.func)
    raise LookupError(f"{path}: no {name}")


def keys_of(path: Path, name: str) -> list[str]:
    """Return the keys of the dictionary `name` of a module, in source order."""
    for line in _tree(path).body:
        if ast.unparse(getattr(line, "target", None) or getattr(line, "targets", [line])[0]) == name:
            return [ast.literal_eval(key) for key in line.value.keys]
    raise LookupError(f"{path}: no {name}")


def _flag(statement: ast.AnnAssign) -> Flag | None:
    """Return the flag that a field declares, or None."""
    if isinstance(statement.value, ast.Call) and ast.unparse(statement.value.func) == "flag":
        default, text = statement.value.args
        written = ast.unparse(default)
        return Flag(ast.unparse(statement.annotation), "" if written == "[]" else written, ast.literal_eval(text))
    keywords = {}
    default = ast.unparse(statement.value) if statement.value is not None else ""
    if isinstance(statement.value, ast.Call):
        keywords = {word.arg: word.value for word in statement.value.keywords}
        factory = keywords.get("default_factory")
        constant = ast.unparse(factory.body) if isinstance(factory, ast.Lambda) else ""
        default = ast.unparse(keywords["default"]) if "default" in keywords else constant
    if "init" in keywords or statement.target.id.startswith("_"):
        return None
    metadata = keywords.get("metadata", ast.Dict([], []))
    entries = {key.value: value for key, value in zip(metadata.keys, metadata.values, strict=True)}
    return Flag(ast.unparse(statement.annotation), default, ast.literal_eval(entries.get("help", ast.Constant(""))))


@cache
def _tree(path: Path) -> ast.Module:
    """Return the module; a `Literal` with a name of its own stands where a field's annotation names it."""
    tree = ast.parse(path.read_text(encoding="utf-8"))
    literals = {ast.unparse(line.targets[0]): line.value for line in tree.body
                if isinstance(line, ast.Assign) and ast.unparse(line.value).startswith("Literal[")}  # fmt: skip
    for field in (node for node in ast.walk(tree) if isinstance(node, ast.AnnAssign)):
        field.annotation = literals.get(ast.unparse(field.annotation), field.annotation)
    return tree


def _lineage(path: Path, name: str) -> list[ast.ClassDef]:
    """Return the bases of a class that are in this repository, then the class."""
    [definition] = [line for line in _tree(path).body if isinstance(line, ast.ClassDef) and line.name == name]
    bases = [_home(path, ast.unparse(base)) for base in reversed(definition.bases)]
    return [*(ancestor for base in bases if base for ancestor in _lineage(*base)), definition]


def _home(path: Path, base: str) -> tuple[Path, str] | None:
    """Return the file and name of a base class, `Base` or `module.Base`; None for a library class."""
    first, _, last = base.partition(".")
    if any(isinstance(line, ast.ClassDef) and line.name == base for line in _tree(path).body):
        return path, base
    for line in (line for line in _tree(path).body if isinstance(line, ast.ImportFrom)):
        for alias in line.names:
            if first == (alias.asname or alias.name):
                module = f"{line.module}.{alias.name}" if last else line.module
                file = ROOT.joinpath(*module.split(".")).with_suffix(".py")
                return (file, last or alias.name) if file.is_file() else None
    return None
