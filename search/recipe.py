"""How to search with a model: `search.json` in its folder.

`python -m adapt` writes it, `Embedder` reads it.
"""

from __future__ import annotations

import logging
from pathlib import Path
from typing import NamedTuple

from common.errors import BadInput
from common.files import read_json, write_json
from eval.retrieval.hybrid import WEIGHT
from eval.retrieval.lexical import LANGUAGES

logger = logging.getLogger(__name__)
FILE = "search.json"


class Recipe(NamedTuple):
    """Defaults of an index.

    Attributes:
        weight: of the cosine, from 0 to 1; the rest is BM25's. At 1 an index has no BM25.
        language: of the words, see `eval.retrieval.lexical`.
    """

    weight: float = WEIGHT
    language: str = "english"

    @classmethod
    def of(cls, model: str | Path) -> Recipe | None:
        """The recipe in a model's folder or on the hub, None without; BadInput if it is damaged."""
        from models.folder import Unreachable, fetch  # here: --help needs no model

        try:
            path = fetch(str(model), FILE)
        except Unreachable as error:
            logger.info("%s; searching as with a model that has none", error)
            path = None
        if path is None:
            return None
        fields = read_json(
            path,
            "how to search with the model",
            "remove it",
            fields={"weight": float, "language": str},
        )
        if not 0 <= fields["weight"] <= 1 or fields["language"] not in LANGUAGES:
            raise BadInput(
                f"{path}: weight must be from 0 to 1, language one of {', '.join(LANGUAGES)}; "
                "remove it"
            )
        return cls(fields["weight"], fields["language"])

    def write(self, folder: Path) -> None:
        write_json(folder / FILE, self._asdict())
