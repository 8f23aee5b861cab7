"""Shared by whitening and flow: encode the text, and save the encoder with one more part."""

from __future__ import annotations

import argparse
import logging
import sys
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import nn

from common.errors import BadInput
from common.files import write_json
from data.source import Source
from data.text import read_text
from eval.encode import Encode
from models.encoder import SentenceEncoder, load_encoder
from models.heads import Head
from models.pooling import PLAIN

logger = logging.getLogger(__name__)
RECORD = "baseline.json"


class Fitted(NamedTuple):
    """An encoder and its vectors of the texts that something is fitted on."""

    encoder: SentenceEncoder
    tokenizer: Any
    vectors: np.ndarray  # (N, D) float32
    record: dict[str, Any]  # what they were made of, for `save_encoder`


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The flags that choose encoder, text and result."""
    parser.add_argument("model", metavar="MODEL", help="run or export folder, Hugging Face encoder")
    parser.add_argument("--pooling", choices=PLAIN, help="for plain encoders; models that state theirs need none")
    parser.add_argument("--train_file", nargs="+", required=True, metavar="TEXT",
                        help="text to fit on: UTF-8, one sentence a line, plain, .gz, .xz or .zst")  # fmt: skip
    parser.add_argument("--columns", type=int, choices=[1, 2, 3], default=1,
                        help="tab-separated sentences in a line, all of which are taken (default: 1)")  # fmt: skip
    parser.add_argument("--max_length", type=int, help="tokens per sentence (default: what the model allows)")
    parser.add_argument("--output", required=True, metavar="DIR", help="new folder for the result")


def fitted(args: argparse.Namespace) -> Fitted:
    """Load the encoder and encode every sentence of the text once.

    Raises:
        BadInput: the text or the model cannot be read, or the model ends in a flow.
    """
    source = Source(tuple(map(Path, args.train_file)), args.columns)
    with TemporaryDirectory() as folder:
        texts = list(read_text(source, folder).cells())
    encoder, tokenizer = load_encoder(args.model, args.pooling, args.max_length)
    if getattr(encoder.head, "flow", None) is not None:
        raise BadInput(f"'{args.model}' ends in a flow already; start from the encoder it was made of")
    if encoder.head is not None:
        encoder.head.dense_layers()  # refuses what could not be saved before any work is done
    encoder.to("cuda" if torch.cuda.is_available() else "cpu")
    logger.info("%s: pooling %s, at most %d tokens; encoding %d sentences", args.model, encoder.pooling,
                encoder.max_length, len(texts))  # fmt: skip
    vectors = Encode(encoder, tokenizer, encoder.max_length, progress=sys.stderr.isatty())(texts)
    record = {"model": args.model, "pooling": encoder.pooling, "train_file": args.train_file,
              "train_sha256": source.sha256, "texts": len(texts)}  # fmt: skip
    return Fitted(encoder, tokenizer, vectors, record)


def save_encoder(folder: str, source: Fitted, part: nn.Module, record: dict[str, Any]) -> None:
    """Save the encoder with `part`, (N, D) -> (N, K), behind its pooling and head, and its record."""
    kept = source.encoder.head if source.encoder.head is not None else []
    source.encoder.head = Head(*kept, part)
    source.encoder.cpu().save(folder, source.tokenizer)
    write_record(folder, source.record | record)
    if not source.encoder.has_modules:
        logger.info("no modules.json: sentence-transformers has no module for a part of this model; "
                    "`python -m eval` and load_encoder read it")  # fmt: skip


def write_record(folder: str, record: dict[str, Any]) -> None:
    """Write `baseline.json`: what the folder was made of."""
    write_json(Path(folder) / RECORD, record, remedy=None)
