"""The architecture's rules that a machine can check: import directions, sizes, unsafe calls."""

import ast
from graphlib import CycleError, TopologicalSorter

import pytest

from tests.sources import PACKAGES, ROOT, SOURCES, imports

# what a package may import of ours; those that are not named here stand on top of all of them
ALLOWED = {
    "common": set(),
    "data": {"common"},
    "models": {"common"},  # and what a method declares of its data, see `DECLARED`
    "eval": {"common"},
    "training": {"common", "data", "models", "eval"},
    "search": {"common", "data", "eval", "models"},  # a model's search.json
}
# what a command of a package may import beside that: it loads what the package scores
COMMANDS = {"data": set(), "eval": {"data", "models", "training"}, "search": {"embedder"}}
# rooms that could be deleted without the core noticing: they enter it by infocse.py, `common` and
# `eval`, and by no more than so many other names
WORKSHOP = {"adapt", "baselines", "bench", "examples", "export", "papers", "report"}
OTHER_NAMES = 56
DECLARED = {"data.views", "data.template"}
PICKLES = {"pickle", "_pickle", "cPickle", "cloudpickle", "dill", "joblib", "marshal", "shelve"}


def ours(path):
    """The packages and scripts of this project that a file imports, its own package left out."""
    names = {name.split(".")[0] for name in imports(path)}
    return names & {*PACKAGES, *(script.stem for script in ROOT.glob("run_*.py"))} - {folder(path)}


def folder(path):
    return path.relative_to(ROOT).parts[0]


def test_imports_go_one_way():
    wrong = {}
    for path in SOURCES:
        name = folder(path)
        if name in ALLOWED:
            allowed = ALLOWED[name] | (COMMANDS[name] if path.name == "__main__.py" else set())
            read = {module for module in imports(path) if module.split(".")[0] == "data"}
            declared = {"data"} if name == "models" and read <= DECLARED else set()
            wrong[str(path)] = ours(path) - allowed - declared
    assert not {path: names for path, names in wrong.items() if names}


def test_the_workshop_enters_the_core_by_few_names():
    used = set()
    for path in SOURCES:
        if folder(path) in WORKSHOP or path.name == "reproduce.py":
            for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
                if isinstance(node, ast.ImportFrom) and node.module:
                    inner = node.module.split(".")[0] in {"data", "models", "training", "search"}
                    used |= {f"{node.module}.{alias.name}" for alias in node.names if inner}
    assert not {name for name in used if name.rpartition(".")[2].startswith("_")}
    assert len(used) <= OTHER_NAMES, sorted(used)


def test_no_packages_import_each_other_in_a_circle():
    assert {*ALLOWED} < {*PACKAGES}
    graph = {name: set() for name in PACKAGES}
    for path in SOURCES:
        if path.name != "__main__.py":
            graph.setdefault(folder(path), set()).update(ours(path))
    try:
        TopologicalSorter(graph).prepare()
    except CycleError as error:
        pytest.fail(" -> ".join(error.args[1]))


def test_the_fast_path_has_one_door_and_so_has_torch_distributed():
    """Methods never meet it, and others enter by `models.fast`; the Trainer chunks."""
    for path in SOURCES:
        inside = {name for name in imports(path) if name.startswith("models.fast")}
        method = path.parent.name == "objectives" and path.name != "base.py"
        doors = set() if method else {"models.fast", "models.fast.chunking"}
        assert path.parts[-2] == "fast" or inside <= doors, path
        uses = any(name.startswith("torch.distributed") for name in imports(path))
        assert uses == (path.name == "collectives.py"), path


def test_an_import_changes_nothing():
    """No module calls anything for its effect alone, or sets an entry of another's mapping."""
    for path in SOURCES:
        for part in ast.parse(path.read_text(encoding="utf-8")).body:
            called = isinstance(part, ast.Expr) and isinstance(part.value, ast.Call)
            targets = part.targets if isinstance(part, ast.Assign) else []
            set_entry = any(isinstance(inner, ast.Subscript) for inner in targets)
            assert not called and not set_entry, (path, part.lineno)


def test_nothing_unsafe_is_called():
    for path in SOURCES:
        assert not {name.split(".")[0] for name in imports(path)} & PICKLES, path
        text = path.read_text(encoding="utf-8")
        for words in ("trust_remote_code=True", "weights_only=False", "shell=True"):
            assert words not in text, path
        assert "extractall" not in text.replace("`extractall`", ""), path
        trusting = ".from_pretrained(" in text and "trust_remote_code=False" not in text
        assert not trusting, path
