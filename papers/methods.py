"""`python -m papers.methods`: the table of methods in docs/methods.md, and what a new method still
lacks.

Without flags, rewrite the table: a line per method file with its first sentence, its configurations
and the published STS averages of the method and of the records named like its configurations. With
`--check NAME`, list what a reviewer asks for beside the method's file and does not find; a run
needs none of it.
"""

import re

from common.errors import run_command
from common.files import ROOT
from common.flags import Parser
from common.streams import show
from eval.compare.sides import PREFIX, published, records
from eval.scores import AVERAGE, Key, markdown
from papers.page import rewritten
from training.methods import load_method, method_names
from training.settings import read_config

PAGE = ROOT / "docs" / "methods.md"


def table() -> str:
    """The table of all methods, as Markdown."""
    return markdown(
        [["method", "file", "configurations", "published STS average"], *map(_row, method_names())]
    )


def _row(name: str) -> list[str]:
    method, configs = load_method(name), _configurations(name)
    key = Key(AVERAGE, "test", "test", "spearman")
    named = [config for config in configs if config in records() and config not in method.published]
    sides = map(published, [*named, *method.published])
    scores = [(side.label.removeprefix(PREFIX), side.scores.get(key)) for side in sides]
    averages = [f"{score.mean:.2f} ({label})" for label, score in scores if score]
    names = ", ".join(f"`{config}`" for config in configs)
    return [method.title, f"`models/objectives/{name}.py`", names, ", ".join(averages) or "-"]


def _configurations(name: str) -> list[str]:
    files = sorted((ROOT / "configs").glob("*.yaml"))
    return [file.stem for file in files if read_config(str(file)).get("method") == name]


def missing(name: str) -> list[str]:
    """What a method lacks before a pull request, a line each; BadInput for an unknown method."""
    method = load_method(name)

    def says(pattern: str, *files: str) -> bool:
        texts = (path.read_text(encoding="utf-8") for file in files for path in ROOT.glob(file))
        return any(re.search(pattern, text) for text in texts)

    file, configs = f"models/objectives/{name}.py", _configurations(name)
    line = " *".join(map(re.escape, ["|", *" | ".join(_row(name)).split(), "|"]))
    titles = "|".join(map(re.escape, [method.title, type(method).__name__, f"`{name}`", *configs]))
    asked = [
        (
            method.about.endswith("."),
            f"{file}: a first paragraph that says what the method is and ends with a full stop",
        ),
        (
            method.citations,
            f"{file}: METHOD = {type(method).__name__}(CITATION), the paper's BibTeX entry",
        ),
        (configs, f"configs/: a file with `method: {name}`, and the source of every value"),
        (
            says(
                rf"objectives import .*\b{name}\b|objectives\.{name}\b|\"{name}\"",
                "tests/models/*.py",
            ),
            f"tests/models/test_{name}.py: a comparison of its loss with an independent "
            "computation",
        ),
        (
            says(titles, "PAPERS.md"),
            "PAPERS.md: a section on the paper, its code and what differs here",
        ),
        (says(f"`{name}`", "README.md"), f"README.md: `{name}` among the values of --method"),
        (
            says(line, "docs/methods.md"),
            "docs/methods.md: its line, which `python -m papers.methods` writes",
        ),
    ]
    return [words for present, words in asked if not present]


def main(argv: list[str] | None = None) -> None:
    """Write the table into docs/methods.md and print it, or check one method."""
    parser = Parser(prog="python -m papers.methods", description=__doc__)
    parser.add_argument(
        "--check", metavar="NAME", help="list what this method lacks before a pull request"
    )
    name = parser.parse_args(argv).check
    if name is None:
        page = rewritten(
            PAGE.read_text(encoding="utf-8"), "methods", "python -m papers.methods", table()
        )
        PAGE.write_text(page, encoding="utf-8")
        show(table())
        return
    show("\n".join(missing(name) or [f"{name} lacks nothing"]))


if __name__ == "__main__":
    run_command(main)
