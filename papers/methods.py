"""`python -m papers.methods`: the table in docs/methods.md, and what a new method still lacks.

Without flags, rewrite the table: a line per method file with its title, its configurations and the
published STS averages of the method and of the records named like its configurations. With
`--check NAME`, list what a reviewer asks for beside the method's file and does not find; a run
needs none of it.
"""

import re

from common.errors import run_command
from common.files import ROOT, read_yaml
from common.flags import Parser
from common.streams import show
from eval.compare.sides import PREFIX, published, records
from eval.scores import AVERAGE, Key, markdown
from infocse import methods
from papers.page import rewritten
from training.methods import load_method

PAGE = ROOT / "docs" / "methods.md"
_AVERAGE = Key(AVERAGE, "test", "test", "spearman")


def methods_table() -> str:
    """The table of all methods, as Markdown."""
    titles = ["method", "file", "configurations", "published STS average"]
    return markdown([titles, *(_line(name) for name in methods())])


def _line(name: str) -> list[str]:
    method, configs = load_method(name), _configurations(name)
    named = [config for config in configs if config in records() and config not in method.published]
    averages = []
    for record in [*named, *method.published]:
        side = published(record)
        if _AVERAGE in side.scores:
            label = side.label.removeprefix(PREFIX)
            averages.append(f"{side.scores[_AVERAGE].mean:.2f} ({label})")
    return [
        method.title,
        f"`models/objectives/{name}.py`",
        ", ".join(f"`{config}`" for config in configs),
        ", ".join(averages) or "-",
    ]


def _configurations(name: str) -> list[str]:
    files = sorted((ROOT / "configs").glob("*.yaml"))
    return [file.stem for file in files if read_yaml(file).get("method") == name]


def missing(name: str) -> list[str]:
    """What a method lacks before a pull request, a line each; BadInput for an unknown method."""
    method, configs = load_method(name), _configurations(name)
    file = f"models/objectives/{name}.py"
    lacks = []
    if not method.about.endswith("."):
        what = "a first paragraph that says what the method is and ends with a full stop"
        lacks.append(f"{file}: {what}")
    if not method.citations:
        lacks.append(f"{file}: METHOD = {type(method).__name__}(CITATION), the BibTeX entry")
    if not configs:
        lacks.append(f"configs/: a file with `method: {name}`, and the source of every value")
    imported = rf"objectives import .*\b{name}\b|objectives\.{name}\b|\"{name}\""
    if not _stands(imported, "tests/models/*.py"):
        what = "a comparison of its loss with an independent computation"
        lacks.append(f"tests/models/test_{name}.py: {what}")
    titles = [method.title, type(method).__name__, f"`{name}`", *configs]
    if not _stands("|".join(map(re.escape, titles)), "PAPERS.md"):
        lacks.append("PAPERS.md: a section on the paper, its code and what differs here")
    if not _stands(f"`{name}`", "README.md"):
        lacks.append(f"README.md: `{name}` among the values of --method")
    words = f"| {' | '.join(_line(name))} |".split()
    if not _stands(" *".join(map(re.escape, words)), "docs/methods.md"):
        lacks.append("docs/methods.md: its line, which `python -m papers.methods` writes")
    return lacks


def _stands(pattern: str, files: str) -> bool:
    """Whether a pattern is found in one of the repository's files."""
    texts = [path.read_text(encoding="utf-8") for path in ROOT.glob(files)]
    return any(re.search(pattern, text) for text in texts)


def main(argv: list[str] | None = None) -> None:
    """Write the table into docs/methods.md and print it, or check one method."""
    parser = Parser(prog="python -m papers.methods", description=__doc__)
    check = "list what this method lacks before a pull request"
    parser.add_argument("--check", metavar="NAME", help=check)
    name = parser.parse_args(argv).check
    if name:
        show("\n".join(missing(name)) or f"{name} lacks nothing")
        return
    table = methods_table()
    before = PAGE.read_text(encoding="utf-8")
    PAGE.write_text(rewritten(before, "methods", "python -m papers.methods", table), "utf-8")
    show(table)


if __name__ == "__main__":
    run_command(main)
