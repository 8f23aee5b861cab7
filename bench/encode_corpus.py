"""`eval.encode_corpus` on a large generated corpus with a stub encoder and kills: is the result complete?"""

import argparse
import os
import signal
import subprocess
import sys
import time
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np

from bench.corpus import HashedTexts, text_of
from common.errors import ProjectError
from common.files import ROOT
from common.flags import positive
from common.memory import peak_mib
from data.lines import numbered_lines
from eval.encode_corpus.job import Job, encode_corpus
from eval.vectors import VectorStore, read_vectors

_STEP = 0.02  # seconds between two checks of the outputs


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--sentences", type=positive, default=1_000_000, help="generated sentences")
    parser.add_argument("--shards", type=positive, default=100, help="files to split them into")
    parser.add_argument("--kills", type=int, default=2, help="SIGKILLs of the driver, evenly spaced over the shards")
    parser.add_argument("--processes", type=positive, default=2, help="shards at a time")
    parser.add_argument("--folder", help="folder for text and vectors, kept (default: a temporary folder)")


def rows(args: argparse.Namespace) -> list[dict]:
    """One row; ProjectError if a vector is missing, wrong, or recomputed after a kill."""
    with TemporaryDirectory() as temporary:
        folder = Path(args.folder or temporary)
        generate(folder / "text", args.sentences, args.shards)
        start = time.perf_counter()
        survived = [_run(args, folder, kill) for kill in range(args.kills + 1)]
        seconds = round(time.perf_counter() - start, 1)
        checked = compare(folder / "text", folder / "vectors")
        if checked != args.sentences:
            raise ProjectError(f"{checked} vectors for {args.sentences} sentences")
        peaks = [int(path.read_text()) for path in (folder / "peaks").iterdir()]
        return [{"name": "encode_corpus on one node", "sentences": args.sentences,
                 "shards": args.shards, "processes": args.processes, "kills": args.kills,
                 "kept_at_kills": survived[:-1], "seconds": seconds, "peak_rss_of_a_process_mib": max(peaks),
                 "equal": checked}]  # fmt: skip


def generate(folder: Path, sentences: int, shards: int) -> None:
    """Write text into `shards` files of nearly equal size; sentence i contains i."""
    folder.mkdir(parents=True, exist_ok=True)
    bounds = np.linspace(0, sentences, shards + 1).astype(int).tolist()
    for number in range(shards):
        with (folder / f"part-{number:05}.txt").open("w", encoding="utf-8") as file:
            file.writelines(text_of(i) + "\n" for i in range(bounds[number], bounds[number + 1]))


class Stub(HashedTexts):
    """The stub encoder, which also writes the peak memory of its process to a file in `peaks`."""

    def __init__(self, peaks: Path, device: str) -> None:
        super().__init__()
        self._peak_file = peaks / str(os.getpid())

    def __call__(self, sentences: list[str]) -> np.ndarray:
        vectors = super().__call__(sentences)
        self._peak_file.write_text(str(round(peak_mib())))
        return vectors


def drive(folder: str, processes: str) -> None:
    """The process that is killed: encode all shards of `folder`/text into `folder`/vectors."""
    peaks = Path(folder) / "peaks"
    peaks.mkdir(exist_ok=True)
    job = Job(partial(Stub, peaks), numbered_lines, VectorStore(Path(folder) / "vectors"))
    encode_corpus(job, [f"{folder}/text"], int(processes))
    (peaks / "driver").write_text(str(round(peak_mib())))


def compare(text: Path, vectors: Path) -> int:
    """Check that all vectors are the stub's vectors of their lines and return their number; else ProjectError."""
    stub, equal = HashedTexts(), 0
    for path in sorted(text.iterdir()):
        expected = stub([line for _, line in numbered_lines(path)])
        if not np.array_equal(read_vectors(vectors / f"{path.stem}.npy"), expected):
            raise ProjectError(f"{path}: the vectors do not match the lines")
        equal += len(expected)
    return equal


def _run(args: argparse.Namespace, folder: Path, kill: int) -> int:
    """Start the driver and, unless this is the last run, kill it midway; return the number of finished shards."""
    before = _done(folder)
    limit = args.shards * (kill + 1) // (args.kills + 1)
    code = "import sys; from bench.encode_corpus import drive; drive(*sys.argv[1:])"
    command = [sys.executable, "-c", code, str(folder.absolute()), str(args.processes)]
    with subprocess.Popen(command, cwd=ROOT, stderr=subprocess.DEVNULL) as driver:
        while kill < args.kills and driver.poll() is None and len(_done(folder)) < limit:
            time.sleep(_STEP)
        if kill < args.kills:
            driver.kill()
    if driver.returncode != (-signal.SIGKILL if kill < args.kills else 0):
        raise ProjectError(f"the driver exited with {driver.returncode} before it was killed; give more --sentences")
    after = _done(folder)
    if any(after.get(name) != changed for name, changed in before.items()):
        raise ProjectError("a finished shard was computed again")
    return len(after)


def _done(folder: Path) -> dict[str, int]:
    return {path.name: path.stat().st_mtime_ns for path in (folder / "vectors").glob("*.done.json")}
