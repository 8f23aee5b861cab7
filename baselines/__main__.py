"""`python -m baselines whitening|flow|word_vectors`: the tables' baselines as folders that `python -m eval` scores."""

from __future__ import annotations

import argparse
import logging
import sys
from dataclasses import asdict, fields
from pathlib import Path

from common.errors import run_command

# isort: split

import torch

from baselines.encoders import add_arguments, fitted, save_encoder, write_record
from baselines.flow import Settings, fit
from baselines.whitening import kernel, linear_map, moments
from baselines.words import STOP_WORDS, read_word_vectors, save_words
from common.flags import Parser
from common.streams import show
from data.lines import content_hash
from export.folder import new_folder
from models.flow import COUPLINGS
from models.word_vectors import SPECIAL

logger = logging.getLogger(__name__)
_EXAMPLES = """examples:
  python -m baselines whitening bert-base-uncased --pooling avg_first_last --train_file wiki.txt --output runs/whitened
  python -m baselines whitening runs/infocse --train_file wiki.txt --dimensions 256 --output runs/infocse-256
  python -m baselines flow bert-base-uncased --pooling avg_first_last --train_file wiki.txt --output runs/flow
  python -m baselines word_vectors glove.6B.300d.txt --output runs/glove
  python -m eval runs/whitened --tasks sts

The papers' tables fit whitening and flow on NLI sentences or on the texts of the STS sets themselves ("target");
say on which text yours was fitted (baseline.json in the folder does)."""
_WHITENING = """Whitening (Su et al. 2021): the vectors of the text get mean 0 and the identity as covariance; with
--dimensions K the K directions of the largest variance are kept. The result is one linear layer behind the pooling, in
float32, computed in float64. The paper averages the first and the last layer: --pooling avg_first_last. The vectors of
avg and cls_before_pooler vary in one direction less than they have entries, because the encoder ends in a layer norm:
give --dimensions."""
_FLOW = """BERT-flow (Li et al. 2020): an invertible network that makes the vectors of the text Gaussian, by maximum
likelihood with the encoder frozen. Prints the mean negative log likelihood in nats a sentence. Defaults are those of
the released code, whose pooling avg-last-2 is really layers 1 and last: --pooling avg_first_last."""
_WORDS = """Averaged word vectors (GloVe and others) from a text file. A word of a sentence is looked up as it stands,
then without punctuation around it, then in lower case, as sentence-transformers does; unknown words are left out of the
average, and `python -m eval` prints their share and writes it into its scores."""


def parser() -> Parser:
    """The command line of `python -m baselines`."""
    p = Parser(
        prog="python -m baselines",
        formatter_class=argparse.RawDescriptionHelpFormatter,
        description="Baselines of the papers' tables that train no encoder, as folders for `python -m eval`.",
        epilog=_EXAMPLES,
    )
    commands = p.add_subparsers(dest="command", required=True)

    def command(name: str, run, about: str) -> Parser:
        sub = commands.add_parser(name, help=about.split(":")[0].split(" from")[0], description=about)
        sub.set_defaults(run=run)
        return sub

    whitening = command("whitening", run_whitening, _WHITENING)
    add_arguments(whitening)
    whitening.add_argument("--dimensions", type=int, metavar="K", help="entries of the result (default: all)")
    flow = command("flow", run_flow, _FLOW)
    add_arguments(flow)
    _add_settings(flow)
    words = command("word_vectors", run_word_vectors, _WORDS)
    words.add_argument("file", metavar="FILE", type=Path, help="a word and its numbers a line; plain, .gz, .xz, .zst")
    words.add_argument("--header", action="store_true", help="the first line is COUNT DIMENSIONS, as word2vec writes")
    words.add_argument("--lower_case", action="store_true", help="sentences in lower case before anything else")
    words.add_argument("--stop_words", choices=list(STOP_WORDS), default="english",
                       help="words that are left out (default: sentence-transformers' English list)")  # fmt: skip
    words.add_argument("--output", required=True, metavar="DIR", help="new folder for the result")
    return p


def _add_settings(parser: Parser) -> None:
    about = {
        "steps": "act-norm, permutation, coupling blocks; BERT-flow's 3 levels of depth 3, without the levels",
        "hidden": "width of the couplings' networks",
        "coupling": "additive as BERT-flow, affine as Glow",
        "learning_rate": "of Adam",
        "epochs": "passes over the text",
        "batch_size": "sentences in a step; BERT-flow's 32 pairs",
        "seed": "of permutations, first weights and order",
    }
    for field in fields(Settings):
        parser.add_argument(f"--{field.name}", type=type(field.default), default=field.default,
                            choices=COUPLINGS if field.name == "coupling" else None,
                            help=f"{about[field.name]} (default: {field.default})")  # fmt: skip


def run_whitening(args: argparse.Namespace, folder: str) -> None:
    """Fit the covariance, write the encoder with one more linear layer."""
    source = fitted(args)
    found = moments(source.vectors)
    matrix = kernel(found, args.dimensions)
    logger.info("whitening: %d to %d dimensions", *matrix.shape)
    record = {"command": "whitening", "dimensions": matrix.shape[1]}
    save_encoder(folder, source, linear_map(matrix, found.mean), record)


def run_flow(args: argparse.Namespace, folder: str) -> None:
    """Train the flow, write the encoder with it."""
    source = fitted(args)
    settings = Settings(**{field.name: getattr(args, field.name) for field in fields(Settings)})
    vectors = torch.from_numpy(source.vectors).to(source.encoder.device)
    flow, before, after = fit(vectors, settings, progress=sys.stderr.isatty())
    record = {"command": "flow", **asdict(settings), "nll_before": before, "nll_after": after}
    save_encoder(folder, source, flow, record)
    show(f"mean negative log likelihood: {before:.3f} at the start, {after:.3f} nats a sentence now", folder)


def run_word_vectors(args: argparse.Namespace, folder: str) -> None:
    """Turn a text file of word vectors into a folder."""
    words = read_word_vectors(args.file, args.header, len(SPECIAL), progress=sys.stderr.isatty())
    logger.info("%s: %d words, %d dimensions", args.file, len(words.words), words.table.shape[1])
    save_words(folder, words, args.lower_case, STOP_WORDS[args.stop_words]())
    write_record(folder, {"command": "word_vectors", "file": str(args.file), "sha256": content_hash([args.file]),
                          "words": len(words.words), "lower_case": args.lower_case,
                          "stop_words": args.stop_words})  # fmt: skip
    logger.info("no modules.json: sentence-transformers cannot read word vectors; load_encoder can")


def main(argv: list[str] | None = None) -> None:
    """Run one command; its folder is whole or not there."""
    args = parser().parse_args(argv)
    with new_folder(Path(args.output)) as folder:
        args.run(args, str(folder))
    logger.info("%s: written; next: python -m eval %s --tasks sts", args.output, args.output)


if __name__ == "__main__":
    run_command(main)
