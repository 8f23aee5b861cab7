"""Download one file of a dataset repository, and record its digest in a lock file the first time.

`huggingface_hub` does the transfer, so `HF_ENDPOINT`, `HF_TOKEN`, `HF_HUB_OFFLINE`, proxies and the progress bar work
as usual, and an interrupted transfer resumes.
"""

import logging
import os
import re
from dataclasses import dataclass
from pathlib import Path

from huggingface_hub import get_hf_file_metadata, hf_hub_download, hf_hub_url

# HTTPError is the base class of the HTTP client's errors: refused, timed out, cut off.
from huggingface_hub.errors import HTTPError, XetDownloadError

from common.errors import BadInput, brief
from common.files import read_json, sha256, write_json

logger = logging.getLogger(__name__)
_SHA256 = re.compile(r"[0-9a-f]{64}")
_FAILURES = (HTTPError, OSError, ValueError, XetDownloadError)


@dataclass(frozen=True)
class HubFile:
    """A file on the hub, and its path below the data folder."""

    repo: str
    file: str
    target: str
    min_lines: int = 0
    revision: str = "main"  # no published source names a commit; the lock file records the one downloaded


def fetch(source: HubFile, folder: Path, by_hand: str) -> tuple[Path, str]:
    """Download `source` into `folder`, unless an earlier run has done so; the library's cache is not used.

    Returns the file and the commit of the revision. BadInput if the download fails, with the advice `by_hand` for users
    without a connection, or if the content is not what the hub announced.
    """
    endpoint = os.environ.get("HF_ENDPOINT", "").rstrip("/") or None  # the library reads it only on import
    logging.getLogger("httpx2").setLevel(logging.WARNING)  # its request lines would show signed URLs
    where = {"repo_type": "dataset", "endpoint": endpoint}
    url = hf_hub_url(source.repo, source.file, revision=source.revision, **where)
    try:
        head = get_hf_file_metadata(url, endpoint=endpoint)
        path = Path(hf_hub_download(source.repo, source.file, revision=head.commit_hash, local_dir=folder, **where))
    except _FAILURES as error:
        what = f"cannot download {source.file} of dataset repository {source.repo} ({url})"
        advice = "run again to resume, set HF_ENDPOINT to a mirror or HF_TOKEN to a token"
        raise BadInput(f"{what}: {brief(error)}; {advice}, or {by_hand}") from error
    # The ETag of a large file is its sha256, the only digest to check a first download against.
    if _SHA256.fullmatch(head.etag or "") and (digest := sha256(path)) != head.etag:
        path.unlink()
        raise BadInput(f"{url}: sha256 is {digest}, but the hub announced {head.etag}; file removed, run again")
    return path, head.commit_hash


def record(lock: Path, source: HubFile, path: Path, commit: str | None) -> None:
    """Record the digest of a file that passed all other checks; BadInput if a different one is on record."""
    entries, digest = read_json(lock, "a record of downloads") if lock.is_file() else {}, sha256(path)
    if source.file not in entries:
        entry = {"repo": source.repo, "revision": source.revision, "commit": commit}
        entry |= {"sha256": digest, "bytes": path.stat().st_size}
        write_json(lock, entries | {source.file: entry}, sort_keys=True)
        said = "%s: digest not pinned by a published source; recorded sha256 %s, commit %s, in %s"
        logger.info(said, source.file, digest, commit or "unknown (copied by hand)", lock)
        return
    known = entries[source.file]
    if not isinstance(known, dict) or known.get("sha256") != digest:
        raise BadInput(
            f"{path}: sha256 is {digest}, but {lock} has {known} for {source.file}: the content changed since the "
            "first download; to accept it, remove that entry and the old copy"
        )
