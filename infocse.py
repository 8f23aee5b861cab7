"""InfoCSE and its family from Python: the one module to import.

    import infocse

    run = infocse.train(sentences, model="bert-base-uncased", output_dir="runs/simcse")
    infocse.evaluate(run, tasks=["sts"])
    infocse.Embedder(run).build_index(documents).search("a question")

Every function does what a command does and writes the same files. Errors that a user can mend are
`common.errors.ProjectError`, one line each.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from os import PathLike, fspath
from typing import Any, Literal

import numpy as np
from transformers import PreTrainedTokenizerBase, TrainerCallback

from common.ranges import checked
from common.signals import stoppable
from embedder import Embedder
from models.encoder import SentenceEncoder

__all__ = ["Embedder", "compare", "evaluate", "load", "methods", "pretrain", "train"]


def methods(labelled: bool | None = None) -> list[str]:
    """The training methods, values of `method` in `train`.

    Args:
        labelled: only those that need labelled pairs (True), or only those that do not (False).

    >>> methods(labelled=True)
    ['nli']
    """
    from training.methods import method_names

    return method_names(labelled)


@stoppable
def pretrain(
    text: str | PathLike | Iterable[str] | None = None,
    model: str | PathLike | None = None,
    output_dir: str | PathLike | None = None,
    callbacks: Sequence[TrainerCallback] = (),
    **settings: Any,
) -> str:
    """Stage 1, as `run_pretrain_aux.py`: masked language modelling with the auxiliary network.

    Args:
        text: running text: a list of texts, or the path of a file or folder.
        model: the masked language model to start from: a folder or a hub id.
        output_dir: the run's folder.
        callbacks: `transformers.TrainerCallback`s.
        settings: any flag of the script by name, including `config`.

    Returns:
        The run's folder, a model for `train`.

    >>> pretrain("TEXT.txt", model="MODEL", output_dir="runs/stage-1", skip_from="auto",
    ...          max_length=64, max_steps=2, per_device_train_batch_size=8)
    'runs/stage-1'
    """
    from data.given import with_text
    from training.methods import STAGE_ONE
    from training.settings import fill
    from training.stages import pretrain as run

    named = {"model_name_or_path": model, "output_dir": output_dir}
    return run(fill(STAGE_ONE, with_text(text, named | settings)), callbacks)


@stoppable
def train(
    text: str | PathLike | Iterable[str] | Iterable[Sequence[str]] | None = None,
    model: str | PathLike | None = None,
    method: str | None = None,
    output_dir: str | PathLike | None = None,
    callbacks: Sequence[TrainerCallback] = (),
    **settings: Any,
) -> str:
    """Train a sentence encoder, as `run_unsup.py`, or `run_sup.py` for a method of labelled pairs.

    The same call starts a run, resumes it, and leaves a finished one unchanged.

    Args:
        text: sentences, rows of two or three sentences, a `datasets.Dataset`, or the path of a file
            or folder; for a method of labelled pairs rows (premise, hypothesis, label).
        model: the model to start from: a folder or a hub id.
        method: one of `methods()`; default: that of `config`, or `simcse`.
        output_dir: the run's folder.
        callbacks: `transformers.TrainerCallback`s.
        settings: any flag of the script by name, including `config`.

    Returns:
        The run's folder, which `load`, `Embedder`, `AutoModel` and `SentenceTransformer` read.

    >>> train(sentences, model="MODEL", output_dir="runs/simcse", dev="none", test_tasks="none",
    ...       max_steps=2, per_device_train_batch_size=8)
    'runs/simcse'
    """
    from data.given import with_text
    from training.methods import SUP, UNSUP, script_of
    from training.settings import fill, method_of
    from training.stages import train_sentences

    if method is None and settings.get("config") is None:
        method = "simcse"
    known = method or method_of(settings["config"])
    script = script_of(known) if known else UNSUP
    named = {"method": method, "model_name_or_path": model, "output_dir": output_dir}
    values = with_text(text, named | settings, labelled=script == SUP)
    return train_sentences(fill(script, values), callbacks)


@checked
def load(
    model: str | PathLike, pooling: str | None = None, max_length: int | None = None
) -> tuple[SentenceEncoder, PreTrainedTokenizerBase]:
    """The encoder and its tokenizer.

    Args:
        model: a run, an export, a sentence-transformers folder, any Hugging Face encoder, or a hub
            id.
        pooling: required if the model does not state one.
        max_length: tokens per text, special ones included; default: the model's limit.

    >>> encoder, tokenizer = load("MODEL", pooling="avg")
    >>> batch = tokenizer(["A sentence.", "Another."], padding=True, return_tensors="pt")
    >>> tuple(encoder.embed(batch["input_ids"], batch["attention_mask"]).shape)
    (2, 32)
    """
    from models.encoder import load_encoder

    return load_encoder(fspath(model), pooling, max_length)


@checked
def evaluate(
    model: str | PathLike | Callable[[list[str]], np.ndarray],
    tasks: Sequence[str] = ("sts",),
    data_dir: str | PathLike = "corpora",
    dev_file: str | PathLike | None = None,
    split: Literal["test", "dev"] = "test",
    mode: Literal["test", "fasttest", "dev"] = "test",
    name: str | None = None,
    **encoding: Any,
) -> list[dict[str, Any]]:
    """Score an encoder in the papers' protocol, as `python -m eval`.

    Args:
        model: as for `Embedder`; or a function that maps N texts to their vectors, (N, D).
        tasks: `sts`, `transfer`, `retrieval` or names of tasks, such as `STS-B`.
        data_dir: the folder that `python -m data.prepare` fills.
        dev_file: scored too: your pairs, tab-separated, header sentence1, sentence2, score.
        split: of STS: `test`, or `dev` (STS-B dev and SICK-R trial), which implies mode `dev`.
        mode: of transfer: `test` as in the papers, `fasttest` or `dev`, which implies split `dev`.
        name: the model's name in the rows; default: its path.
        encoding: `pooling`, `max_length`, `bf16`, `device` or `cache_dir`, as for `Embedder`.

    Returns:
        The rows of scores.json, values x 100: task, split, mode, metric, aggregation, n, value,
        model and how texts were encoded.

    >>> rows = evaluate("MODEL", tasks=[], dev_file="PAIRS.tsv", pooling="avg")
    >>> [(row["task"], row["metric"]) for row in rows if row["headline"]]
    [('PAIRS', 'spearman')]
    """
    from eval.scores import rows_of
    from eval.tasks import Options, score_all, tasks_chosen

    if "dev" in (split, mode):  # as in the command: a test score beside it would help nobody
        split = mode = "dev"
    if isinstance(model, (str, PathLike)):
        embedder = Embedder(model, **encoding)
        encode, settings = embedder.encoder, embedder.encoder.settings
        options = Options(
            split=split, mode=mode, device=embedder.device, cache_dir=fspath(embedder.cache_dir)
        )
    else:
        encode, settings, options = model, {}, Options(split=split, mode=mode)
    chosen = tasks_chosen(tasks, dev_file, options)
    results = score_all(encode, chosen, data_dir)
    return rows_of(results, name or str(model), None, **settings)


@checked
def compare(a: str | PathLike, b: str | PathLike) -> list[dict[str, Any]]:
    """The differences of two models, methods or published records, as `python -m eval.compare`.

    Args:
        a: a run or its scores.json; several, one per seed, separated by commas; or `published:ID`.
        b: the other side, likewise.

    Returns:
        One row per figure that both sides have: task, A, B, their difference and its 95 % interval.

    >>> compare("published:infocse-bert-base", "published:simcse-bert-base")[0]["task"]
    'STS12'
    """
    from eval.compare.intervals import compare as compared
    from eval.compare.sides import side

    lines = compared(side(fspath(a)), side(fspath(b)))
    return [line.row() for line in lines if line.difference is not None]
