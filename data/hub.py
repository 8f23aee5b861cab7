"""Downloads one file of a dataset repository, and keeps a lock file of what was downloaded first.

`huggingface_hub` does the transfer, so `HF_ENDPOINT`, `HF_TOKEN`, `HF_HUB_OFFLINE`, proxies and the progress bar work
as usual, and a broken transfer resumes.
"""

from __future__ import annotations

import logging
import os
import re
from dataclasses import dataclass
from pathlib import Path

from huggingface_hub import get_hf_file_metadata, hf_hub_download, hf_hub_url

# HTTPError is the base of what the library's HTTP client raises: refused, timed out, cut.
from huggingface_hub.errors import HTTPError, OfflineModeIsEnabled, XetDownloadError

from common.errors import BadInput
from common.files import read_json, sha256, write_json

logger = logging.getLogger(__name__)
_SHA256 = re.compile(r"[0-9a-f]{64}")
_FAILURES = (HTTPError, OSError, ValueError, XetDownloadError)
_REASON_CHARS = 300


@dataclass(frozen=True)
class Source:
    """A file on the hub, and its place below the data folder."""

    repo: str
    file: str
    target: str
    min_lines: int = 0
    revision: str = "main"  # no published source names a commit; the lock file records which one it was


def fetch(source: Source, folder: Path, by_hand: Path) -> tuple[Path, str]:
    """Download `source` into `folder`, or find it there complete from an earlier run.

    Args:
        source: what to download.
        folder: where the download goes; the library's cache is not used.
        by_hand: where a user without a connection can put the files, for the message.

    Returns:
        The file, and the commit that the revision stands for.

    Raises:
        BadInput: the download fails, or is not what the hub announced.
    """
    endpoint = os.environ.get("HF_ENDPOINT", "").rstrip("/") or None  # the library reads it only when it is imported
    logging.getLogger("httpx2").setLevel(logging.WARNING)  # its request lines would show signed addresses
    place = {"repo_type": "dataset", "endpoint": endpoint}
    url = hf_hub_url(source.repo, source.file, revision=source.revision, **place)
    try:
        head = get_hf_file_metadata(url, endpoint=endpoint)
        if head.commit_hash is None or head.etag is None:
            raise ValueError("the answer names no commit or no ETag, so this is not a hub")
        path = Path(hf_hub_download(source.repo, source.file, revision=head.commit_hash, local_dir=folder, **place))
    except _FAILURES as error:
        raise BadInput(_explain(source, url, error, by_hand)) from error
    # The ETag of a large file is its sha256, the only digest to check a first download against.
    if _SHA256.fullmatch(head.etag) and (found := sha256(path)) != head.etag:
        path.unlink()
        raise BadInput(f"{url}: sha256 is {found}, but the hub announced {head.etag}; removed, run again")
    return path, head.commit_hash


def _explain(source: Source, url: str, error: Exception, by_hand: Path) -> str:
    status = getattr(getattr(error, "response", None), "status_code", None)
    if isinstance(error, OfflineModeIsEnabled):
        advice = "unset HF_HUB_OFFLINE"
    elif status in (401, 403):
        advice = "set HF_TOKEN to a token that may read it"
    elif status == 404:
        advice = "the repository or file does not exist: set HF_ENDPOINT to a mirror that has it"
    elif getattr(error, "errno", None):
        advice = "check the data folder and the free space there"
    else:
        advice = "run the same command again, which resumes, or set HF_ENDPOINT to a mirror"
    reason = " ".join(str(error).split())[:_REASON_CHARS] or type(error).__name__
    what = f"cannot download {source.file} of dataset repository {source.repo} ({url})"
    return f"{what}: {reason}; {advice}; or put it there by hand: {by_hand}"


def locked(lock: Path, source: Source) -> str | None:
    """The sha256 that the lock file holds for `source`, if any; BadInput for a damaged lock file."""
    digest = _entries(lock).get(source.file, {}).get("sha256")
    if digest is not None and not _SHA256.fullmatch(str(digest)):
        raise BadInput(f"{lock}: the sha256 of {source.file} is not 64 hex digits; repair or remove the file")
    return digest


def check(lock: Path, source: Source, path: Path) -> str:
    """The sha256 of a file; BadInput if the lock file has another one for `source`."""
    expected, found = locked(lock, source), sha256(path)
    if expected not in (None, found):
        raise BadInput(
            f"{path}: sha256 is {found}, but {lock} recorded {expected} for {source.file}: the content changed since "
            "the first download; to accept it, remove that entry and the old copy"
        )
    return found


def record(lock: Path, source: Source, commit: str | None, digest: str, size: int) -> None:
    """Add a file that passed every check to the lock file, unless it has an entry."""
    if locked(lock, source) is not None:
        return
    entry = {"repo": source.repo, "revision": source.revision, "commit": commit, "sha256": digest, "bytes": size}
    write_json(lock, {**_entries(lock), source.file: entry}, sort_keys=True)
    logger.info("%s: digest not pinned by a published source; recorded sha256 %s, commit %s, in %s", source.file,
                digest, commit or "unknown (put there by hand)", lock)  # fmt: skip


def _entries(lock: Path) -> dict[str, dict]:
    entries = read_json(lock, "a record of downloads") if lock.is_file() else {}
    if not all(isinstance(entry, dict) for entry in entries.values()):
        raise BadInput(f"{lock}: is not a record of downloads (an object of objects is needed); repair or remove it")
    return entries
