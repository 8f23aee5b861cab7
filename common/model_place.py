"""Whether there is a model of a name, asked once and before a library is loaded that would ask for a minute."""

from __future__ import annotations

import difflib
import threading
from functools import cache
from pathlib import Path

from common.errors import BadInput


def check_place(name: str) -> None:
    """Check that a name is that of a folder, or of a model in the hub's cache or on the hub.

    Where the hub is asked, it has HF_HUB_ETAG_TIMEOUT seconds (10) to answer, its address to be found included.

    Raises:
        BadInput: it is none of them, or the hub does not answer.
    """
    place = Path(name)
    if place.exists():
        return
    here = "/" in name.strip("/") and place.parent.is_dir()  # `runs/x`, where the hub has no say if runs/ is here
    folder = here or name.startswith(("/", ".", "~")) or name.count("/") > 1 or name.endswith("/")
    problem = _hub_problem(name, folder)
    if problem is None:
        return
    near = nearest(place)
    advice = f"did you mean '{near}'?" if near else "name a folder with a model or a finished run"
    if here and name.count("/") == 1:
        advice += f" (if it is of the hub: hf download {name} --local-dir DIR, and name DIR)"
    raise BadInput(f"'{name}': no such folder here{problem}; {advice}")


def nearest(place: Path, kind: str = "*/") -> Path | None:
    """The path most like this one, each part like the other's, the last of a pattern; None without such a one."""
    found = Path(place.anchor)
    for part in place.parts[bool(place.anchor) :]:
        if not (found / part).is_dir():
            names = [one.name for one in found.glob(kind if part == place.name else "*/")]
            near = difflib.get_close_matches(part, names, n=1)
            if not near:
                return None
            part = near[0]
        found = found / part
    return found


def _hub_problem(name: str, folder: bool) -> str | None:
    """Why there is no such model of the hub; None where there is one."""
    from huggingface_hub import constants, try_to_load_from_cache  # here: a folder needs neither
    from huggingface_hub.errors import HFValidationError

    try:
        if isinstance(try_to_load_from_cache(name, "config.json"), str):
            return None
    except HFValidationError:  # no name of a repository
        folder = True
    if folder:
        return ""
    if constants.HF_HUB_OFFLINE:
        return ", and the hub could not be asked (HF_HUB_OFFLINE is set)"
    try:
        _ask(name, constants.HF_HUB_ETAG_TIMEOUT)
    except LookupError as error:
        return f", and {error}"
    return None


@cache
def _ask(name: str, seconds: float) -> None:
    """Ask the hub for a model's configuration; LookupError with what it said, or that it did not."""
    said: list[str] = []
    asking = threading.Thread(target=lambda: said.append(_answer(name, seconds)), daemon=True)
    asking.start()
    asking.join(seconds)  # finding an address takes as long as the system likes
    problem = said[0] if said else f"the hub did not answer in {seconds} s (HF_HUB_ETAG_TIMEOUT gives it more)"
    if problem:
        raise LookupError(problem)


def _answer(name: str, seconds: float) -> str:
    """What keeps a model of the hub from being loaded; empty where the library may try."""
    from huggingface_hub import get_hf_file_metadata, hf_hub_url
    from huggingface_hub.errors import EntryNotFoundError, GatedRepoError, HTTPError, RepositoryNotFoundError

    try:
        get_hf_file_metadata(hf_hub_url(name, "config.json"), timeout=2 * seconds)  # so that the thread ends
    except (EntryNotFoundError, GatedRepoError):  # it is there; the library says what is missing
        return ""
    except RepositoryNotFoundError:
        return "no such model on the hub (a private one needs HF_TOKEN)"
    except (HTTPError, OSError, ValueError) as error:
        return f"the hub could not be asked ({str(error).strip().partition(chr(10))[0] or type(error).__name__})"
    return ""
