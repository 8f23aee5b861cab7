"""Two processes of one run, started without a launcher, which would end with 1 whatever they end with."""

import os
import socket
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]


def start_both(arguments, program=(str(ROOT / "run_unsup.py"),), others=None):
    """Start them as a cluster's scheduler does; `others` are the arguments of rank 1 where it has its own."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = str(free.getsockname()[1])
    common = os.environ | {"OMP_NUM_THREADS": "1", "HF_HUB_OFFLINE": "1"}
    common |= {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port, "WORLD_SIZE": "2", "LOCAL_WORLD_SIZE": "2"}
    return [
        subprocess.Popen(
            [sys.executable, *program, *words],
            stderr=subprocess.PIPE,
            text=True,
            env=common | {"RANK": rank, "LOCAL_RANK": rank},
        )
        for rank, words in (("0", arguments), ("1", others or arguments))
    ]
