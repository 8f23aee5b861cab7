"""Which way is taken where."""

import torch


def on_cpu(x: torch.Tensor) -> bool:
    """Whether the CPU's own way is taken; a compiled step takes what every device can run."""
    return x.device.type == "cpu" and not torch.compiler.is_compiling()
