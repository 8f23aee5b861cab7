"""`python -m baselines whitening|flow|word_vectors`: the papers' baselines that train no encoder.

Whitening is one linear layer: it is saved with its encoder, for `python -m eval`. A flow and
averaged word vectors are scored at once.
"""

from __future__ import annotations

import argparse
import logging
from collections.abc import Sequence
from dataclasses import asdict, fields
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, TypeAlias

import infocse
from common.errors import BadInput, run_command

# isort: split

import numpy as np
import torch

from baselines.flow import Settings, fit
from baselines.whitening import kernel, linear_map, moments
from baselines.words import averaged, read_words
from common.files import find_files, write_json
from common.flags import Parser, add_pooling, check_output, positive
from common.folders import filling
from common.streams import show
from data.lines import content_hash
from data.source import Source
from data.text import read_text
from eval.encode import Encode, Encoder, device_here
from eval.scores import BEGINNING, rows_of, score_tables, write_scores
from eval.tasks import Options, score_all, tasks_chosen
from export.facts import BASELINE
from models.heads import Head

logger = logging.getLogger(__name__)
# sentences to vectors, and what was fitted to what: each row of its scores states it
Fitted: TypeAlias = tuple[Encoder, dict[str, Any]]
_EXAMPLES = """examples:
  python -m baselines whitening bert-base-uncased --pooling avg_first_last --train_file wiki.txt \\
      --output runs/whitened
  python -m baselines whitening runs/infocse --train_file wiki.txt --dimensions 256 \\
      --output runs/infocse-256
  python -m eval runs/whitened --tasks sts
  python -m baselines flow bert-base-uncased --pooling avg_first_last --train_file wiki.txt \\
      --tasks sts --output runs/flow.json
  python -m baselines word_vectors glove.6B.300d.txt --tasks sts

The papers' tables fit whitening and flow on NLI sentences or on the texts of the STS sets
themselves ("target"). Report the text yours was fitted on: the folder's baseline.json and every row
of scores name it."""
_WHITENING = """Whitening (Su et al. 2021): the vectors of the text get mean 0 and identity
covariance; --dimensions K keeps the K directions with the largest variance. The result is one
linear layer after the pooling, in float32, computed in float64. --power below 1 whitens in part
(ours): for a trained encoder start from 0.5 and choose it on dev pairs. The paper averages the
first and the last layer: --pooling avg_first_last. With avg and cls_before_pooler the result has
one dimension less: the encoder ends in a layer norm, so the vectors do not vary in one
direction."""
_FLOW = """BERT-flow (Li et al. 2020): an invertible network that makes the vectors of the text
Gaussian, trained by maximum likelihood with a frozen encoder, and its scores. Prints the mean
negative log likelihood in nats per sentence. Defaults are those of the released code, whose pooling
avg-last-2 actually means layers 1 and last: --pooling avg_first_last."""
_WORDS = """Scores of averaged word vectors (GloVe and others) from a text file. A word is looked
up unchanged, then without surrounding punctuation, then in lower case; English stop words and
unknown words are left out."""
_TEXT = (
    "text to fit on, as given or below --data_dir: UTF-8, one sentence per line, plain, .gz, .xz, "
    ".bz2 or .zst"
)


def main(argv: Sequence[str] | None = None) -> None:
    """Run one command; what it writes is complete or absent."""
    args = parser().parse_args(argv)
    if args.command == "whitening":
        with filling(Path(args.output)) as folder:
            whiten(args, folder)
        logger.info("%s: written; next: python -m eval %s --tasks sts", args.output, args.output)
        return
    check_output(args.output, [], BEGINNING)
    tasks = tasks_chosen(args.tasks, args.dev_file, Options(device=device_here()))
    for task in tasks:
        task.load(args.data_dir)  # missing data is an error now, not after the fit
    encode, facts = fitted(args)
    results = score_all(encode, tasks, args.data_dir)
    rows = rows_of(results, args.command, None, **facts)
    if args.output:
        write_scores(args.output, results, rows)
    show(score_tables({args.command: rows}))


def parser() -> Parser:
    p = Parser(
        prog="python -m baselines",
        description="The papers' baselines that train no encoder.",
        epilog=_EXAMPLES,
    )
    commands = p.add_subparsers(dest="command", required=True)

    whitening = commands.add_parser("whitening", help="a linear layer", description=_WHITENING)
    _add_encoder(whitening)
    dimensions = "dimensions of the result (default: all that vary)"
    whitening.add_argument("--dimensions", type=positive, metavar="K", help=dimensions)
    power = "0 centres, 1 whitens, in between large directions shrink"
    whitening.add_argument("--power", type=float, default=1.0, metavar="P", help=power)
    whitening.add_argument("--output", required=True, metavar="DIR", help="a new folder")

    flow = commands.add_parser("flow", help="scores of a flow", description=_FLOW)
    _add_encoder(flow)
    for field in fields(Settings):
        help_text = field.metadata["help"]
        kind = type(field.default)
        flow.add_argument(f"--{field.name}", type=kind, default=field.default, help=help_text)
    _add_scores(flow)

    about = "scores of averaged word vectors"
    words = commands.add_parser("word_vectors", help=about, description=_WORDS)
    lines = "lines of a word and its numbers, as GloVe's and word2vec's; plain or .gz"
    words.add_argument("file", metavar="FILE", type=Path, help=lines)
    words.add_argument("--data_dir", default="corpora", help="folder with texts and test sets")
    _add_scores(words)
    return p


def _add_encoder(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("model", metavar="MODEL", help="run or export folder, Hugging Face encoder")
    add_pooling(parser)
    parser.add_argument("--train_file", required=True, nargs="+", metavar="TEXT", help=_TEXT)
    parser.add_argument("--data_dir", default="corpora", help="folder with texts and test sets")
    columns = "tab-separated sentences per line, all used; of a table the column 'text' is read"
    parser.add_argument("--columns", type=int, choices=[1, 2, 3], default=1, help=columns)
    names = "columns to read from a table, or from lines with a header"
    parser.add_argument("--text_column", nargs="+", default=[], metavar="NAME", help=names)
    length = "maximum tokens per sentence (default: the model's limit)"
    parser.add_argument("--max_length", type=int, help=length)


def _add_scores(parser: argparse.ArgumentParser) -> None:
    tasks = "as for python -m eval (default: sts)"
    parser.add_argument("--tasks", nargs="+", default=[], metavar="TASK", help=tasks)
    pairs = "your own pairs: tab-separated, header sentence1, sentence2, score (0 to 5)"
    parser.add_argument("--dev_file", help=pairs)
    parser.add_argument("--output", metavar="FILE.json", help="write the rows of scores")


def whiten(args: argparse.Namespace, folder: Path) -> None:
    """Fit the whitening matrix and save the encoder with it as a linear layer, and its record."""
    if not 0 <= args.power <= 1:
        raise BadInput(f"--power {args.power}: must be from 0 (centre only) to 1 (whiten)")
    encode, vectors, facts = _encoded(args)
    statistics = moments(vectors)
    matrix = kernel(statistics, args.dimensions, args.power)
    logger.info("whitening: %d to %d dimensions", *matrix.shape)
    encoder = encode.module
    before = [] if encoder.head is None else list(encoder.head)
    encoder.head = Head(*before, linear_map(matrix, statistics.mean))
    encoder.cpu().save(str(folder), encode.tokenizer)
    facts |= {"dimensions": matrix.shape[1], "power": args.power}
    write_json(folder / BASELINE, {"command": "whitening", **facts})


def fitted(args: argparse.Namespace) -> Fitted:
    """The encoder of a flow or word vectors that a command line describes, and its facts."""
    return _fit_flow(args) if args.command == "flow" else _load_words(args)


def _fit_flow(args: argparse.Namespace) -> Fitted:
    settings = Settings(**{field.name: getattr(args, field.name) for field in fields(Settings)})
    plain, vectors, facts = _encoded(args)
    flow, before, after = fit(torch.from_numpy(vectors).to(device_here()), settings)
    logger.info(
        "mean negative log likelihood: %.3f before, %.3f nats per sentence after training",
        before,
        after,
    )

    def encode(sentences: list[str]) -> np.ndarray:
        return flow.latent(plain(sentences))

    facts |= {"max_length": plain.max_length, "nll_before": before, "nll_after": after}
    return encode, facts | asdict(settings)


def _load_words(args: argparse.Namespace) -> Fitted:
    words = read_words(args.file)
    count, width = words.emb_layer.weight.shape
    logger.info("%d words, %d dimensions", count - 1, width)  # the first row is padding
    sha256 = content_hash([args.file])
    return averaged(words), {"file": str(args.file), "sha256": sha256, "words": count - 1}


def _encoded(args: argparse.Namespace) -> tuple[Encode, np.ndarray, dict[str, Any]]:
    """The encoder, its vectors (N, D) of every sentence of the text, and their origin.

    Raises:
        BadInput: the text or the model cannot be read, or the model ends in a normalisation.
    """
    files = tuple(find_files(args.train_file, args.data_dir))
    source = Source(files, args.columns, tuple(args.text_column))
    with TemporaryDirectory() as folder:
        texts = list(read_text(source, folder).cells())
    encoder, tokenizer = infocse.load(args.model, args.pooling, args.max_length)
    if encoder.normalizes:
        raise BadInput(
            f"'{args.model}' ends in a normalisation; give --pooling for the encoder without it"
        )
    encode = Encode(encoder.to(device_here()), tokenizer, progress=True)
    logger.info(
        "%s: pooling %s, at most %d tokens; encoding %d sentences",
        args.model,
        encoder.pooling,
        encoder.max_length,
        len(texts),
    )
    facts = {
        "base": args.model,
        "pooling": encoder.pooling,
        "texts": len(texts),
        "train_file": args.train_file,
        "train_sha256": source.sha256,
    }
    return encode, encode(texts), facts


if __name__ == "__main__":
    run_command(main)
