"""`python -m baselines whitening|flow|word_vectors`: the papers' baselines, as folders for `python -m eval`."""

import argparse
import logging
from dataclasses import asdict, fields
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from common.errors import BadInput, run_command

# isort: split

import numpy as np
import torch
from torch import nn

from baselines.flow import Settings, fit
from baselines.whitening import kernel, linear_map, moments
from baselines.words import STOP_WORDS, learn_word_vectors, read_word_vectors, save_words
from common.files import find_files, write_json
from common.flags import Parser, add_pooling, positive
from common.streams import show
from data.lines import content_hash
from data.source import Source
from data.text import read_text
from eval.encode import Encode, device_here
from export.facts import BASELINE
from export.folder import new_folder
from models.encoder import SentenceEncoder, load_encoder
from models.heads import Head
from models.word_vectors import SPECIAL

logger = logging.getLogger(__name__)
_EXAMPLES = """examples:
  python -m baselines whitening bert-base-uncased --pooling avg_first_last --train_file wiki.txt --output runs/whitened
  python -m baselines whitening runs/infocse --train_file wiki.txt --dimensions 256 --output runs/infocse-256
  python -m baselines flow bert-base-uncased --pooling avg_first_last --train_file wiki.txt --output runs/flow
  python -m baselines word_vectors glove.6B.300d.txt --output runs/glove
  python -m eval runs/whitened --tasks sts

The papers' tables fit whitening and flow on NLI sentences or on the texts of the STS sets themselves ("target").
Report the text yours was fitted on; it is in the folder's baseline.json."""
_WHITENING = """Whitening (Su et al. 2021): the vectors of the text get mean 0 and identity covariance; --dimensions K
keeps the K directions with the largest variance. The result is one linear layer after the pooling, in float32, computed
in float64. --power below 1 whitens in part (ours): for a trained encoder start from 0.5 and choose it on dev pairs.
The paper averages the first and the last layer: --pooling avg_first_last. With avg and cls_before_pooler the result has
one dimension less: the encoder ends in a layer norm, so the vectors do not vary in one direction."""
_FLOW = """BERT-flow (Li et al. 2020): an invertible network that makes the vectors of the text Gaussian, trained by
maximum likelihood with a frozen encoder. Prints the mean negative log likelihood in nats per sentence. Defaults are
those of the released code, whose pooling avg-last-2 actually means layers 1 and last: --pooling avg_first_last."""
_WORDS = """Averaged word vectors (GloVe and others) from a text file, or learnt from --train_file: 300 dimensions of
the SVD of their positive pointwise mutual information (Levy, Goldberg and Dagan 2015). A word is looked up unchanged,
then without surrounding punctuation, then in lower case, as in sentence-transformers. The average ignores unknown
words; `python -m eval` reports their share."""
_TRAIN_FILE: dict[str, Any] = {
    "nargs": "+",
    "metavar": "TEXT",
    "help": "text to fit on, as given or below --data_dir: UTF-8, one sentence per line, plain, .gz, .xz, .bz2 or .zst",
}


def parser() -> Parser:
    p = Parser(
        prog="python -m baselines",
        description="The papers' baselines that train no encoder, as folders for `python -m eval`.",
        epilog=_EXAMPLES,
    )
    commands = p.add_subparsers(dest="command", required=True)

    def command(name: str, run, about: str) -> Parser:
        sub = commands.add_parser(
            name, help=about.split(":")[0].split(" from")[0], description=about
        )
        sub.set_defaults(run=run)
        return sub

    whitening = command("whitening", run_whitening, _WHITENING)
    _add_encoder(whitening)
    dimensions = "dimensions of the result (default: all that vary)"
    whitening.add_argument("--dimensions", type=positive, metavar="K", help=dimensions)
    power = "0 centres, 1 whitens, in between large directions shrink"
    whitening.add_argument("--power", type=float, default=1.0, metavar="P", help=power)
    flow = command("flow", run_flow, _FLOW)
    _add_encoder(flow)
    for field in fields(Settings):
        flow.add_argument(
            f"--{field.name}", type=type(field.default), default=field.default, **field.metadata
        )
    words = command("word_vectors", run_word_vectors, _WORDS)
    lines = (
        "lines of a word and its numbers, as GloVe's and word2vec's; plain, .gz, .xz, .bz2, .zst"
    )
    origin = words.add_mutually_exclusive_group(required=True)
    origin.add_argument("file", metavar="FILE", type=Path, nargs="?", help=lines)
    origin.add_argument("--train_file", **_TRAIN_FILE)
    _add_text(words)
    ignored = "words to ignore (default: sentence-transformers' English list)"
    words.add_argument("--stop_words", choices=list(STOP_WORDS), default="english", help=ignored)
    words.add_argument("--output", required=True, metavar="DIR", help="new folder for the result")
    return p


def _add_encoder(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("model", metavar="MODEL", help="run or export folder, Hugging Face encoder")
    add_pooling(parser)
    parser.add_argument("--train_file", required=True, **_TRAIN_FILE)
    _add_text(parser)
    parser.add_argument(
        "--max_length", type=int, help="maximum tokens per sentence (default: the model's limit)"
    )
    parser.add_argument("--output", required=True, metavar="DIR", help="new folder for the result")


def _add_text(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--data_dir", default="corpora", help="folder with texts")
    columns = "tab-separated sentences per line, all of which are used; of a table the column 'text' is read"
    parser.add_argument("--columns", type=int, choices=[1, 2, 3], default=1, help=columns)
    names = "columns to read from a table, or from lines with a header"
    parser.add_argument("--text_column", nargs="+", default=[], metavar="NAME", help=names)


def _sentences(args: argparse.Namespace) -> tuple[list[str], dict[str, Any]]:
    """Every sentence of the text, and its origin for baseline.json."""
    source = Source(
        tuple(find_files(args.train_file, args.data_dir)), args.columns, tuple(args.text_column)
    )
    with TemporaryDirectory() as folder:
        texts = list(read_text(source, folder).cells())
    return texts, {
        "texts": len(texts),
        "train_file": args.train_file,
        "train_sha256": source.sha256,
    }


def encode_text(
    args: argparse.Namespace,
) -> tuple[SentenceEncoder, Any, np.ndarray, dict[str, Any]]:
    """The encoder, its tokenizer, its vectors (N, D) of every sentence of the text, their origin
    for baseline.json.

    Raises:
        BadInput: the text or the model cannot be read, or the model ends in a flow or a
            normalisation.
    """
    texts, origin = _sentences(args)
    encoder, tokenizer = load_encoder(args.model, args.pooling, args.max_length)
    if encoder.flow is not None or encoder.normalizes:
        raise BadInput(
            f"'{args.model}' ends in a flow or a normalisation; give --pooling for the encoder "
            "without it"
        )
    encoder.to(device_here())
    shape = encoder.pooling, encoder.max_length, len(texts)
    logger.info("%s: pooling %s, at most %d tokens; encoding %d sentences", args.model, *shape)
    vectors = Encode(encoder, tokenizer, progress=True)(texts)
    return encoder, tokenizer, vectors, {"model": args.model, "pooling": encoder.pooling, **origin}


def save_encoder(folder: str, encoder: SentenceEncoder, tokenizer, part: nn.Module) -> None:
    """Save the encoder with `part`, (N, D) -> (N, K), after its pooling and head."""
    kept = encoder.head if encoder.head is not None else []
    encoder.head = Head(*kept, part)
    encoder.cpu().save(folder, tokenizer)
    if not encoder.has_modules:
        logger.info(
            "no modules.json: sentence-transformers has no module for part of this model; use "
            "load_encoder"
        )


def run_whitening(args: argparse.Namespace, folder: str) -> dict[str, Any]:
    """Fit the whitening matrix, save the encoder with it as a linear layer, and return the record."""
    if not 0 <= args.power <= 1:
        raise BadInput(f"--power {args.power}: must be from 0 (centre only) to 1 (whiten)")
    encoder, tokenizer, vectors, record = encode_text(args)
    statistics = moments(vectors)
    matrix = kernel(statistics, args.dimensions, args.power)
    logger.info("whitening: %d to %d dimensions", *matrix.shape)
    save_encoder(folder, encoder, tokenizer, linear_map(matrix, statistics.mean))
    return record | {"command": "whitening", "dimensions": matrix.shape[1], "power": args.power}


def run_flow(args: argparse.Namespace, folder: str) -> dict[str, Any]:
    """Train the flow, save the encoder with it, and return the record."""
    settings = Settings(**{field.name: getattr(args, field.name) for field in fields(Settings)})
    encoder, tokenizer, vectors, record = encode_text(args)
    flow, before, after = fit(torch.from_numpy(vectors).to(encoder.device), settings)
    save_encoder(folder, encoder, tokenizer, flow)
    show(
        f"mean negative log likelihood: {before:.3f} before, {after:.3f} nats per sentence after "
        "training"
    )
    return record | {
        "command": "flow",
        **asdict(settings),
        "nll_before": before,
        "nll_after": after,
    }


def run_word_vectors(args: argparse.Namespace, folder: str) -> dict[str, Any]:
    """Convert a text file of word vectors to a folder, or learn them, and return the record."""
    if args.file:
        words = read_word_vectors(args.file, len(SPECIAL))
        origin = {"file": str(args.file), "sha256": content_hash([args.file])}
    else:
        texts, origin = _sentences(args)
        words = learn_word_vectors(texts, len(SPECIAL))
    logger.info("%d words, %d dimensions", len(words.words), words.table.shape[1])
    save_words(folder, words, STOP_WORDS[args.stop_words]())
    logger.info("no modules.json: sentence-transformers cannot load word vectors; use load_encoder")
    return {
        "command": "word_vectors",
        **origin,
        "words": len(words.words),
        "stop_words": args.stop_words,
    }


def main(argv: list[str] | None = None) -> None:
    """Run one command; its folder is written atomically."""
    args = parser().parse_args(argv)
    with new_folder(Path(args.output)) as folder:
        write_json(folder / BASELINE, args.run(args, str(folder)), remedy=None)
    logger.info("%s: written; next: python -m eval %s --tasks sts", args.output, args.output)


if __name__ == "__main__":
    run_command(main)
