"""`python -m papers.methods`: rewrite the table of methods in docs/methods.md.

One line per method file: its first sentence, the configurations of the method, and the published STS averages of the
records in eval/compare/published.yaml that are named like these configurations.
"""

import sys

from common.errors import run_command
from common.files import ROOT
from common.flags import Parser
from common.streams import show
from eval.compare.sides import records
from eval.scores import AVERAGE, Key, markdown
from papers.page import rewritten
from training.methods import load_method, method_names
from training.settings import read_config


def table() -> str:
    rows = [["method", "file", "configurations", "published STS average"]]
    trains = {file.stem: read_config(str(file)).get("method") for file in (ROOT / "configs").glob("*.yaml")}
    for name in method_names():
        configs = sorted(config for config, method in trains.items() if method == name)
        names = ", ".join(f"`{config}`" for config in configs)
        about = sys.modules[type(load_method(name)).__module__].__doc__.splitlines()[0]
        rows.append([about.split(":")[0].split(" (")[0], f"`models/objectives/{name}.py`", names, _published(configs)])
    return markdown(rows)


def _published(configs: list[str]) -> str:
    key = Key(AVERAGE, "test", "test", "spearman")
    scores = [(name, records()[name].scores.get(key)) for name in configs if name in records()]
    return ", ".join(f"{score.mean:.2f} ({name})" for name, score in scores if score) or "-"


def main(argv: list[str] | None = None) -> None:
    """Write the table into docs/methods.md and print it."""
    Parser(prog="python -m papers.methods", description=__doc__).parse_args(argv)
    path = ROOT / "docs" / "methods.md"
    made = table()
    page = rewritten(path.read_text(encoding="utf-8"), "methods", "python -m papers.methods", made)
    path.write_text(page, encoding="utf-8")
    show(made, path)


if __name__ == "__main__":
    run_command(main)
