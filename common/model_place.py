"""Check that a model exists, once, and before slow libraries are imported, which would retry for a minute."""

from __future__ import annotations

import difflib
import threading
from functools import cache
from pathlib import Path

from common.errors import BadInput, first_line
from common.files import ROOT, read_yaml


def check_place(name: str) -> None:
    """Check that a name is a folder, or a model in the hub's cache or on the hub.

    The hub gets HF_HUB_ETAG_TIMEOUT seconds (10) to answer, DNS lookup included.

    Raises:
        BadInput: it is none of them, or the hub does not answer.
    """
    place = Path(name)
    if place.exists():
        if (place / "trainer_state.json").is_file() and (place.absolute().parent / "run.json").is_file():
            run = place.absolute().parent
            raise BadInput(f"'{name}': a checkpoint, only to resume from; name its run, {run}, or {run / 'best'}")
        return
    here = "/" in name.strip("/") and place.parent.is_dir()  # `runs/x` is a local path if runs/ exists
    folder = here or name.startswith(("/", ".", "~")) or name.count("/") > 1 or name.endswith("/")
    problem = _hub_problem(name, folder)
    if problem is None:
        return
    near, config = nearest(place), _trained_by(name)
    advice = f"did you mean '{near}'?" if near else "name a folder with a model or a finished run"
    if config:
        advice = f"it is the run of {config}: train that first"
    elif here and name.count("/") == 1 and not name.startswith((".", "~")):
        advice += f" (for a model on the hub: hf download {name} --local-dir DIR, then name DIR)"
    raise BadInput(f"'{name}': no such folder{problem}; {advice}")


def _trained_by(folder: str) -> Path | None:
    """The configuration of this project whose run would be this folder."""
    configs = sorted((ROOT / "configs").glob("*.yaml"))
    return next((path.relative_to(ROOT) for path in configs if read_yaml(path).get("output_dir") == folder), None)


def nearest(place: Path, kind: str = "*/") -> Path | None:
    """Return the existing path most like this one, part by part, its last part matching `kind`; None if absent."""
    path = Path(place.anchor)
    for part in place.parts[bool(place.anchor) :]:
        if not (path / part).is_dir():
            names = [child.name for child in path.glob(kind if part == place.name else "*/")]
            matches = difflib.get_close_matches(part, names, n=1)
            if not matches:
                return None
            part = matches[0]
        path = path / part
    return path


def _hub_problem(name: str, folder: bool) -> str | None:
    """Return why the hub has no such model, or None if it has."""
    from huggingface_hub import constants, try_to_load_from_cache  # here: a folder needs neither
    from huggingface_hub.errors import HFValidationError

    try:
        if isinstance(try_to_load_from_cache(name, "config.json"), str):
            return None
    except HFValidationError:  # not a valid repository name
        folder = True
    if folder:
        return ""
    if constants.HF_HUB_OFFLINE:
        return ", and the hub was not queried (HF_HUB_OFFLINE is set)"
    try:
        _ask(name, constants.HF_HUB_ETAG_TIMEOUT)
    except LookupError as error:
        return f", and {error}"
    return None


@cache
def _ask(name: str, seconds: float) -> None:
    """Query the hub for a model's configuration; LookupError if it has none or does not answer."""
    answers: list[str] = []
    query = threading.Thread(target=lambda: answers.append(_answer(name, seconds)), daemon=True)
    query.start()
    query.join(seconds)  # a DNS lookup has no timeout of its own
    problem = answers[0] if answers else f"the hub did not answer in {seconds} s (raise HF_HUB_ETAG_TIMEOUT)"
    if problem:
        raise LookupError(problem)


def _answer(name: str, seconds: float) -> str:
    """Return why a model on the hub cannot be loaded; empty if the library may try."""
    from huggingface_hub import get_hf_file_metadata, hf_hub_url
    from huggingface_hub.errors import EntryNotFoundError, GatedRepoError, HTTPError, RepositoryNotFoundError

    try:
        get_hf_file_metadata(hf_hub_url(name, "config.json"), timeout=2 * seconds)  # so that the thread ends
    except (EntryNotFoundError, GatedRepoError):  # it exists; the library reports what is missing
        return ""
    except RepositoryNotFoundError:
        return "no such model on the hub (a private one needs HF_TOKEN)"
    except (HTTPError, OSError, ValueError) as error:
        return f"the hub could not be queried ({first_line(error)})"
    return ""
