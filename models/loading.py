"""Reading a checkpoint whole or not at all."""

from __future__ import annotations

from contextlib import contextmanager

from transformers import PreTrainedModel
from transformers.utils import logging as transformers_logging

from errors import BadInput


@contextmanager
def quiet():
    """Keep transformers' loading report back: what it would say is checked, and refused where it matters."""
    level = transformers_logging.get_verbosity()
    bar = transformers_logging.is_progress_bar_enabled()
    transformers_logging.set_verbosity_error()
    transformers_logging.disable_progress_bar()
    try:
        yield
    finally:
        transformers_logging.set_verbosity(level)
        if bar:
            transformers_logging.enable_progress_bar()


def load_strictly(kind, path: str, config, **extra) -> PreTrainedModel:
    """`kind.from_pretrained` with every tensor from the file; BadInput names what is missing."""
    try:
        with quiet():
            model, info = kind.from_pretrained(
                path, config=config, output_loading_info=True, trust_remote_code=False, **extra
            )
    except (OSError, RuntimeError, ValueError) as error:
        raise BadInput(f"cannot load '{path}' by {kind.__name__}: {error}") from error
    if info["missing_keys"]:
        raise BadInput(
            f"'{path}' does not fill {len(info['missing_keys'])} tensors of a {type(model).__name__}, among them "
            f"{sorted(info['missing_keys'])[0]}; weights are never drawn at random in their place"
        )
    return model
