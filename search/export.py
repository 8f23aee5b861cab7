"""An index as Parquet, for engines that search further than one machine's memory.

    part-00000.parquet ...  a row for every window, in the order of the index:
                            id and title of its document, text, start and end (characters of the
                            document's text), vector: D float32 of length 1
    search.json             how to search them

and a manifest, see `common.folders`. docs/engines.md reads them.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from common.files import write_json
from common.folders import filling
from eval.vectors import blocks
from search.index import Index
from search.recipe import FILE, Recipe


def export(index: Index, folder: Path, model: str | None = None) -> int:
    """Write a loaded index to a new folder; returns the number of its windows.

    Args:
        index: loaded.
        folder: a new one.
        model: where the index's model is now, whose search.json is copied; default: where it was.

    Raises:
        BadInput: the folder exists, or the model has gone.
    """
    known = index.facts
    identity, query, document = known["identity"]
    source = index.model(model)
    recipe = Recipe.of(source) or Recipe()
    how: dict[str, Any] = {
        "similarity": "cosine",
        "weight": recipe.weight if known["language"] else 1.0,
        "model": source,
        "identity": identity,
        "prompts": {"query": query, "document": document},
    }
    for name in ("language", "pooling", "max_length", "documents", "windows", "width"):
        how[name] = known[name]
    vectors = pa.list_(pa.float32(), known["width"])
    start = 0
    with filling(folder, {"export": 1}) as new:
        for number, rows in enumerate(blocks(index.vectors)):
            windows = index.windows[start : start + len(rows)]
            documents = index.documents.select(["id", "title"]).take(windows[:, 0])
            whole = {row: index.document(row).text for row in np.unique(windows[:, 0]).tolist()}
            columns = {
                "id": documents["id"],
                "title": documents["title"],
                "text": pa.array(
                    [whole[row][begin:end] for row, begin, end in windows.tolist()],
                    pa.large_string(),
                ),
                "start": windows[:, 1],
                "end": windows[:, 2],
                "vector": pa.FixedSizeListArray.from_arrays(rows.ravel(), type=vectors),
            }
            pq.write_table(pa.table(columns), new / f"part-{number:05d}.parquet")
            start += len(rows)
        write_json(new / FILE, how)
    return start
