"""The process of `tests.pretend_gpu.run`: prints one JSON row per case. `guard.cpp` is loaded before torch."""

from __future__ import annotations

import json
import logging
import sys

import torch

from common.flags import Parser
from tests.pretend_gpu.steps import rows

if __name__ == "__main__":
    parser = Parser(prog="python -m tests.pretend_gpu", description=__doc__)
    for name in ("layers", "batch", "length"):
        parser.add_argument(f"--{name}", type=int)
    parser.add_argument("--half", action="store_true")
    parser.add_argument("--objectives", nargs="*", default=[])
    torch.set_num_threads(1)
    logging.disable(logging.WARNING)
    for row in rows(**vars(parser.parse_args())):
        sys.stdout.write(json.dumps(row) + "\n")
