"""This project's own source files, found on disk, and its YAML."""

import ast
from pathlib import Path

ROOT = Path(__file__).parents[1]
PACKAGES = sorted(path.parent.name for path in ROOT.glob("*/__init__.py"))
INSIDE = (path for name in PACKAGES for path in (ROOT / name).rglob("*.py"))
SOURCES = sorted([*ROOT.glob("*.py"), *INSIDE])
COMMANDS = [path for path in SOURCES if "    run_command(main)\n" in path.read_text("utf-8")]


def module(path):
    """The name under which a source file is imported or run."""
    return ".".join(path.relative_to(ROOT).with_suffix("").parts)


def imports(path):
    """The modules that a source file imports, wherever in it."""
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            yield node.module or ""


def check_entry(entry, needed, optional=None):
    """Fail unless `entry` has all needed keys, no unknown ones, and values of these types."""
    assert needed.keys() <= entry.keys() <= needed.keys() | (optional or {}).keys(), entry
    for name, value in entry.items():
        kinds = (needed | (optional or {}))[name]
        assert type(value) in (kinds if isinstance(kinds, tuple) else (kinds,)), (name, entry)
