"""What of a run is not the paper's, in words, as far as the paper's own configuration tells."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from common.command_line import read_config
from export.published import backbone_of
from models.loading import load_config

BACKBONE, START = "other backbone", "other start"
UNKNOWN_START, UNKNOWN_TEXT = "start not compared", "text not compared"


def of_run(settings: Mapping[str, Any], paper: Path, backbone: str, papers: str) -> tuple[str, ...]:
    """Backbone, start, text and budget of a run against the paper's.

    Args:
        settings: of the run; without `model_name_or_path` where it starts from another run of the table.
        paper: the configuration of the method with the paper's backbone, which may not be there.
        backbone: of the run.
        papers: the paper's.
    """
    theirs = read_config(str(paper)) if paper.is_file() else {}
    start = settings.get("model_name_or_path", theirs.get("model_name_or_path"))
    found = [of_start(start, theirs.get("model_name_or_path"), backbone, papers)]
    if not theirs:
        found.append(UNKNOWN_TEXT)
    elif theirs.get("train_file", settings["train_file"]) != settings["train_file"]:
        found.append("other text")
    if settings.get("max_steps", "-1") != theirs.get("max_steps", "-1"):
        found.append("other budget")
    return tuple(filter(None, found))


def of_start(start: str | None, own: str | None, backbone: str, papers: str) -> str | None:
    """Whether a model is of the paper's architecture and size; by its name alone where its folder is not here.

    Args:
        start: the model.
        own: where the configuration starts, None where nothing says so.
        backbone: the name under which it is run.
        papers: the paper's backbone.
    """
    if backbone != papers:
        return BACKBONE
    if start and (Path(start) / "config.json").is_file():
        return None if (backbone_of(load_config(start)) or "").startswith(papers) else START
    return None if start == own else UNKNOWN_START
