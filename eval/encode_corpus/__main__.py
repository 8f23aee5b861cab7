"""`python -m eval.encode_corpus SHARDS --model M --output DIR`: encode a corpus of any size."""

from functools import partial
from pathlib import Path

from common.errors import run_command

# isort: split

import torch

from common.flags import Parser, add_encoder, add_prompts, positive
from data.lines import texts_by_line
from eval.encode import Encode
from eval.encode_corpus.job import Job, encode_corpus
from eval.vectors import DTYPES, VectorStore
from models.encoder import load_encoder


def parser() -> Parser:
    p = Parser(
        prog="python -m eval.encode_corpus",
        description="Encode shards of text into one output each, with the shard's name and row order. To resume, run "
        "the\nsame command again: finished shards are kept. See docs/scale.md.",
        epilog="example:\n  python -m eval.encode_corpus corpus/ --model runs/infocse --output vectors --dtype int8",
    )
    p.add_argument(
        "inputs",
        nargs="+",
        metavar="SHARD",
        help="UTF-8 lines (plain, .gz, .xz, .bz2, .zst) or Parquet; a folder stands for all files below it",
    )
    p.add_argument("--model", required=True, help="as for `python -m eval`")
    p.add_argument("--output", required=True, metavar="DIR", help="folder for one model's vectors with one setting")
    p.add_argument("--dtype", choices=DTYPES, default="float32", help="int8: with one scale per vector")
    p.add_argument("--column", default="text", help="column of Parquet inputs")
    add_encoder(p)
    add_prompts(p, "document")
    processes = "shards at a time, each with its own model (default: one per GPU, else 1)"
    p.add_argument("--processes", type=positive, default=torch.cuda.device_count() or 1, help=processes)
    return p


def make_encode(
    model: str, pooling: str | None, max_length: int | None, bf16: bool, prompt: str | None, device: str
) -> Encode:
    encoder, tokenizer = load_encoder(model, pooling, max_length, {"document": prompt})
    return Encode(encoder.to(device), tokenizer, bf16=bf16).of("document")


def main(argv: list[str] | None = None) -> list[dict]:
    """Run the command and return the records of the shards."""
    args = parser().parse_args(argv)
    make = partial(make_encode, args.model, args.pooling, args.max_length, args.bf16, args.document_prompt)
    job = Job(make, texts_by_line, VectorStore(Path(args.output), args.dtype), args.column)
    return encode_corpus(job, args.inputs, args.processes)


if __name__ == "__main__":
    from eval.encode_corpus.__main__ import main  # so that worker processes can import `make_encode`

    run_command(main)
