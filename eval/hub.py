"""What a command is about to fetch from the hub, and fetching it at one revision."""

import logging
from fnmatch import fnmatch
from pathlib import Path

from huggingface_hub import HfApi, snapshot_download, try_to_load_from_cache

from common.errors import BadInput, brief

logger = logging.getLogger(__name__)
_PLAIN = """
    config.json tokenizer*.json special_tokens_map.json added_tokens.json vocab.* merges.txt *.model modules.json
    sentence_bert_config.json config_sentence_transformers.json */config.json */model.safetensors""".split()
_WEIGHTS = "model*.safetensors*", "pytorch_model*.bin*"  # the first that is there


def announce(model: str, revision: str | None = None) -> list[str]:
    """Log what loading a hub id would download, in one line; return the names of all files that it needs.

    A folder, a hub that does not answer and a repository that does not exist give no line and no names: loading
    reports those.
    """
    if Path(model).exists():
        return []
    try:
        info = HfApi().model_info(model, revision=revision, files_metadata=True, timeout=30)
    except Exception:  # the client raises all kinds of errors
        return []
    sizes = {file.rfilename: file.size or 0 for file in info.siblings}
    weights = next((found for part in _WEIGHTS if (found := _matching(sizes, [part]))), [])
    names = [*_matching(sizes, _PLAIN), *weights]
    absent = [name for name in names if not isinstance(try_to_load_from_cache(model, name, revision=info.sha), str)]
    if absent:
        size = sum(sizes[name] for name in absent) / 1e6
        logger.info("%s at %s: downloads %d files, %.1f MB", model, (info.sha or "")[:12], len(absent), size)
    return names


def fetch(model: str, revision: str | None = None) -> Path:
    """Download a hub id at a revision, `main` if None, unless it is in the cache; return its folder, named by commit.

    BadInput if it does not exist, or the hub does not answer and the cache lacks it.
    """
    names = announce(model, revision)
    try:
        return Path(snapshot_download(model, revision=revision, allow_patterns=names or [*_PLAIN, *_WEIGHTS]))
    except Exception as error:  # the client raises all kinds of errors
        raise BadInput(f"'{model}' cannot be fetched from the hub: {brief(error)}") from error


def _matching(names, patterns) -> list[str]:
    """The names that fit a pattern, in which * does not match a slash."""
    return [name for name in names if any(name.count("/") == p.count("/") and fnmatch(name, p) for p in patterns)]
