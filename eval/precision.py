"""Where bfloat16 costs time instead of saving it."""

from __future__ import annotations

import functools
import logging

import torch

logger = logging.getLogger(__name__)
X86 = ("avx512_bf16", "amx_bf16")  # either multiplies bfloat16; without them torch widens every product by hand


def bf16_is_slow(device: str) -> bool:
    """Whether `--bf16` is slower than float32: an x86 processor without instructions for it, by torch's word.

    Stage 1 on the small BERT took 6.7 s a step there in bfloat16 and 1.8 s in float32 (results/README.md).
    """
    found = torch.cpu.get_capabilities() if device == "cpu" else {}
    return found.get("architecture") == "x86_64" and not any(found.get(name) for name in X86)


@functools.cache
def warn_of_slow_bf16(device: str) -> None:
    """Say it once a process."""
    if bf16_is_slow(device):
        logger.warning(
            "bf16 on a processor without instructions for it (%s): several times slower than float32; leave --bf16 "
            "out (--bf16 false, or --float32 of python -m papers)",
            ", ".join(X86),
        )
