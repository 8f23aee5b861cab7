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
from huggingface_hub.errors import HTTPError, OfflineModeIsEnabled, XetDownloadError

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
    place = {"repo_type": "dataset", "endpoint": endpoint}
    url = hf_hub_url(source.repo, source.file, revision=source.revision, **place)
    try:
        head = get_hf_file_metadata(url, endpoint=endpoint)
        if head.commit_hash is None or head.etag is None:
            raise ValueError("the response has no commit or no ETag, so this is not a hub")
        path = Path(hf_hub_download(source.repo, source.file, revision=head.commit_hash, local_dir=folder, **place))
    except _FAILURES as error:
        raise BadInput(_explain(source, url, error, by_hand)) from error
    # The ETag of a large file is its sha256, the only digest to check a first download against.
    if _SHA256.fullmatch(head.etag) and (found := sha256(path)) != head.etag:
        path.unlink()
        raise BadInput(f"{url}: sha256 is {found}, but the hub announced {head.etag}; file removed, run again")
    return path, head.commit_hash


def _explain(source: HubFile, url: str, error: Exception, by_hand: str) -> str:
    status = getattr(getattr(error, "response", None), "status_code", None)
    if isinstance(error, OfflineModeIsEnabled):
        advice = "unset HF_HUB_OFFLINE"
    elif status in (401, 403):
        advice = "set HF_TOKEN to a token with read access"
    elif status == 404:
        advice = "the repository or file does not exist: set HF_ENDPOINT to a mirror that has it"
    elif getattr(error, "errno", None):
        advice = "check the data folder and its free space"
    else:
        advice = "run the same command again to resume, or set HF_ENDPOINT to a mirror"
    what = f"cannot download {source.file} of dataset repository {source.repo} ({url})"
    return f"{what}: {brief(error)}; {advice}; or {by_hand}"


def record(lock: Path, source: HubFile, path: Path, commit: str | None) -> None:
    """Record the digest of a file that passed all other checks; BadInput if a different one is on record."""
    entries, found = read_json(lock, "a record of downloads") if lock.is_file() else {}, sha256(path)
    if source.file not in entries:
        entry = {"repo": source.repo, "revision": source.revision, "commit": commit, "sha256": found,
                 "bytes": path.stat().st_size}  # fmt: skip
        write_json(lock, entries | {source.file: entry}, sort_keys=True)
        logger.info("%s: digest not pinned by a published source; recorded sha256 %s, commit %s, in %s", source.file,
                    found, commit or "unknown (copied by hand)", lock)  # fmt: skip
        return
    known = entries[source.file]
    if not isinstance(known, dict) or not _SHA256.fullmatch(str(known.get("sha256"))):
        raise BadInput(f"{lock}: the sha256 of {source.file} is not 64 hex digits; repair or remove the file")
    if known["sha256"] != found:
        raise BadInput(
            f"{path}: sha256 is {found}, but {lock} recorded {known['sha256']} for {source.file}: the content changed "
            "since the first download; to accept it, remove that entry and the old copy"
        )
