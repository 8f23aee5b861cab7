"""`python -m eval.encode_corpus SHARDS --model M --output DIR`: encode a corpus of any size."""

from functools import partial
from pathlib import Path

from common.errors import run_command

# isort: split

import torch

from common.flags import Parser, add_encoder, add_prompts
from data.lines import texts_by_line
from eval.encode import Encode
from eval.vectors.job import Job
from eval.vectors.store import DTYPES, WRITERS, VectorStore
from eval.vectors.workers import encode_corpus
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
    p.add_argument("--format", choices=list(WRITERS), default="parquet", help="file format of the vectors")
    p.add_argument("--dtype", choices=DTYPES, default="float32", help="int8: with one scale per vector")
    p.add_argument("--column", default="text", help="column of Parquet inputs")
    add_encoder(p)
    add_prompts(p, "document")
    p.add_argument("--processes", type=int, default=torch.cuda.device_count() or 1,
                   help="shards at a time, each with its own model (default: one per GPU, else 1)")  # fmt: skip
    p.add_argument("--ray", action="store_true", help="use Ray Data, on the cluster at RAY_ADDRESS or on this machine")
    return p


def make_encode(
    model: str, pooling: str | None, max_length: int | None, bf16: bool, prompt: str | None, device: str
) -> Encode:
    encoder, tokenizer = load_encoder(model, pooling, max_length, {"document": prompt})
    return Encode(encoder.to(device), tokenizer, bf16=bf16).of("document")


def main(argv: list[str] | None = None) -> list[dict]:
    """Run the command and return the records of the shards."""
    args = parser().parse_args(argv)
    local = Path(args.model).exists()
    model = str(Path(args.model).absolute()) if local else args.model  # workers may have another working directory
    make = partial(make_encode, model, args.pooling, args.max_length, args.bf16, args.document_prompt)
    store = VectorStore(Path(args.output).absolute(), args.format, args.dtype)
    return encode_corpus(Job(make, texts_by_line, store, args.column), args.inputs, args.processes, args.ray)


if __name__ == "__main__":
    from eval.encode_corpus.__main__ import main  # so that worker processes can import `make_encode`

    run_command(main)
