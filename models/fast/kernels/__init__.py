"""Operations written for speed on a CPU; each has an equivalent in torch.

These files import nothing of ours but each other.
"""

import torch


def on_cpu(x: torch.Tensor) -> bool:
    """Whether to use the CPU implementation."""
    return x.device.type == "cpu"
