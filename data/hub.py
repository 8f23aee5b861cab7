"""One file of a dataset repository into a folder, and the lock file that remembers which file it was.

The library does the transfer, so that `HF_ENDPOINT`, `HF_TOKEN`, `HF_HUB_OFFLINE`, proxies and the progress
bar work as everywhere; it also resumes a transfer that is cut while the command runs.
"""

from __future__ import annotations

import hashlib
import json
import logging
import os
import re
from dataclasses import dataclass
from pathlib import Path

from huggingface_hub import get_hf_file_metadata, hf_hub_download, hf_hub_url

# HTTPError is the base of what the library's HTTP client raises: refused, timed out, cut.
from huggingface_hub.errors import HTTPError, OfflineModeIsEnabled, XetDownloadError

from common.errors import BadInput

_LOG = logging.getLogger(__name__)
_SHA256 = re.compile(r"[0-9a-f]{64}")
_FAILURES = (HTTPError, OSError, ValueError, XetDownloadError)
_REASON_CHARS = 300


@dataclass(frozen=True)
class Source:
    """A file on the hub, and where its content goes below the data folder."""

    repo: str
    file: str
    target: str
    min_lines: int = 0
    # A moving name: no published source states a commit. The lock file records what it meant the first time.
    revision: str = "main"


@dataclass(frozen=True)
class Measure:
    """Digest and size of a file; `lines` counts an unterminated last line too."""

    sha256: str
    size: int
    lines: int


def measure(path: Path) -> Measure:
    digest, size, lines, last = hashlib.sha256(), 0, 0, b"\n"
    with path.open("rb") as file:
        while block := file.read(1 << 20):
            digest.update(block)
            size, lines, last = size + len(block), lines + block.count(b"\n"), block[-1:]
    return Measure(digest.hexdigest(), size, lines + (last != b"\n"))


def fetch(source: Source, folder: Path, by_hand: Path) -> tuple[Path, str]:
    """Download `source` into `folder`, or find it there whole from a run that stopped later.

    Args:
        source: What to download.
        folder: Where the download lives; nothing is written to the library's cache.
        by_hand: Where a user without a connection can lay the files, for the message.

    Returns:
        The downloaded file and the commit that the revision stands for.

    Raises:
        BadInput: The file cannot be had, or is not what the hub announced.
    """
    # Read at the call: the library keeps the value it saw when it was imported.
    endpoint = os.environ.get("HF_ENDPOINT", "").rstrip("/") or None
    logging.getLogger("httpx2").setLevel(logging.WARNING)  # its request lines would show signed addresses
    url = hf_hub_url(source.repo, source.file, repo_type="dataset", revision=source.revision, endpoint=endpoint)
    try:
        head = get_hf_file_metadata(url, endpoint=endpoint)
        if head.commit_hash is None or head.etag is None:
            raise ValueError("the answer names no commit or no ETag, so this is not a hub")
        path = hf_hub_download(
            source.repo,
            source.file,
            repo_type="dataset",
            revision=head.commit_hash,
            endpoint=endpoint,
            local_dir=folder,
        )
    except _FAILURES as error:
        raise BadInput(_explain(source, url, error, by_hand)) from error
    return _announced(Path(path), head.etag, url), head.commit_hash


def _announced(path: Path, etag: str, url: str) -> Path:
    """The hub names large files by their sha256: the only digest to hold a first download against."""
    if _SHA256.fullmatch(etag) and (found := measure(path).sha256) != etag:
        path.unlink()
        raise BadInput(f"{url}: sha256 is {found}, but the hub announced {etag}; removed, run again")
    return path


def _explain(source: Source, url: str, error: Exception, by_hand: Path) -> str:
    status = getattr(getattr(error, "response", None), "status_code", None)
    if isinstance(error, OfflineModeIsEnabled):
        advice = "unset HF_HUB_OFFLINE"
    elif status in (401, 403):
        advice = "set HF_TOKEN to a token that may read it"
    elif status == 404:
        advice = "the repository or file is not there: set HF_ENDPOINT to a mirror that has it"
    elif getattr(error, "errno", None):
        advice = "check the data folder and the free space there"
    else:
        advice = "run the same command again, finished parts are kept, or set HF_ENDPOINT to a mirror"
    reason = " ".join(str(error).split())[:_REASON_CHARS] or type(error).__name__
    what = f"cannot download {source.file} of dataset repository {source.repo} ({url})"
    return f"{what}: {reason}; {advice}; or lay it by hand: {by_hand}"


def locked(lock: Path, source: Source) -> str | None:
    """The digest that the lock file holds for `source`, if it holds one."""
    digest = _read(lock).get(source.file, {}).get("sha256")
    if digest is not None and not _SHA256.fullmatch(str(digest)):
        raise BadInput(f"{lock}: the sha256 of {source.file} is not 64 hex digits; repair or remove the file")
    return digest


def check(lock: Path, source: Source, path: Path, found: Measure) -> None:
    """Refuse a file that is not the one of the first time."""
    expected = locked(lock, source)
    if expected not in (None, found.sha256):
        raise BadInput(
            f"{path}: sha256 is {found.sha256}, but {lock} recorded {expected} for {source.file}: the "
            "content changed since the first download; to accept it, remove that entry and the old copy"
        )


def record(lock: Path, source: Source, commit: str | None, found: Measure) -> None:
    """Remember the digest of a file that passed every check, unless the lock file has it already."""
    if locked(lock, source) is not None:
        return
    entry = {"repo": source.repo, "revision": source.revision, "commit": commit}
    files = {**_read(lock), source.file: {**entry, "sha256": found.sha256, "bytes": found.size}}
    part = lock.with_name(lock.name + ".part")
    part.write_text(json.dumps(files, indent=2, sort_keys=True) + "\n", encoding="utf-8")
    part.replace(lock)
    _LOG.info(
        "%s: digest not pinned by a published source; recorded sha256 %s, commit %s, in %s",
        source.file,
        found.sha256,
        commit or "unknown (laid by hand)",
        lock,
    )


def _read(lock: Path) -> dict[str, dict]:
    if not lock.is_file():
        return {}
    try:
        files = json.loads(lock.read_text(encoding="utf-8"))
    except (ValueError, RecursionError) as error:
        raise BadInput(f"{lock}: not valid JSON ({error}); repair or remove the file") from error
    if not isinstance(files, dict) or not all(isinstance(entry, dict) for entry in files.values()):
        raise BadInput(f"{lock}: expected an object of objects; repair or remove the file")
    return files
