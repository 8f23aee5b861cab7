"""`python -m eval.analyse MODEL [MODEL ...]`: the papers' analyses of sentence vectors, models side by side."""

import argparse
import json
import logging
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from common.errors import run_command
from common.files import read_json, writing
from common.flags import Parser, add_encoder, output_folder
from common.streams import show
from eval.analyse.analysis import Analysis, CachedEncoder, gather
from eval.analyse.geometry import ABOVE, ALIGNMENT_UNIFORMITY, ANISOTROPY, COSINE_BY_GOLD
from eval.analyse.pictures import CHARTS, draw
from eval.encode import Encode, device_here
from eval.labels import labelled
from eval.scores import markdown
from eval.sts import own_pairs
from eval.tasks import Options, tasks_named
from models.encoder import SentenceEncoder, load_encoder
from models.saved_format import read_modules

ANALYSES = {
    "alignment_uniformity": ALIGNMENT_UNIFORMITY,
    "anisotropy": ANISOTROPY,
    "cosine_by_gold": COSINE_BY_GOLD,
}
logger = logging.getLogger(__name__)


def parser() -> Parser:
    p = Parser(
        prog="python -m eval.analyse",
        description="Analyse the vectors of sentence encoders side by side: print a table of the main numbers and,\n"
        "with --output, write analyses.json with all numbers and a picture of each analysis.\n\nanalyses:\n"
        + "\n".join(f"  {name:21} {analysis.about}" for name, analysis in ANALYSES.items()),
        epilog="examples:\n"
        "  python -m eval.analyse runs/simcse runs/infocse --output analyses\n"
        "  python -m eval.analyse before=bert-base-uncased after=runs/infocse --pooling cls_before_pooler",
    )
    p.add_argument("models", nargs="+", metavar="[NAME=]MODEL",
                   help="run or export folder, Hugging Face encoder or sentence-transformers model; NAME is its label "
                   "in tables and pictures (default: the end of the path)")  # fmt: skip
    p.add_argument("--only", nargs="+", choices=ANALYSES, default=list(ANALYSES), metavar="ANALYSIS",
                   help="run only these analyses (default: all)")  # fmt: skip
    p.add_argument("--output", metavar="DIR", help="write analyses.json and the pictures to this folder")
    p.add_argument("--data_dir", default="corpora", help="folder with senteval/downstream")
    pairs = p.add_mutually_exclusive_group()
    pairs.add_argument("--split", choices=["test", "dev"], default="test", help="STS-B split")
    pairs.add_argument("--dev_file", help="your pairs instead: tab-separated, header sentence1, sentence2, score")
    p.add_argument("--above", type=float, default=ABOVE, metavar="SCORE",
                   help="alignment_uniformity: pairs with a higher gold score are positives")  # fmt: skip
    p.add_argument("--sentences", metavar="FILE",
                   help="one sentence per line, for anisotropy (default: the sentences of the pairs)")  # fmt: skip
    add_encoder(p)
    return p


def main(argv: list[str] | None = None) -> dict[str, Any]:
    """Run the command and return the content of analyses.json."""
    args = parser().parse_args(argv)
    chosen = {name: analysis for name, analysis in ANALYSES.items() if name in args.only}
    task = own_pairs(args.dev_file) if args.dev_file else tasks_named(["STS-B"], Options(args.split))[0]
    material = gather(chosen.values(), task, args.data_dir, args.sentences, args.above)
    output = _output(args.output) if args.output else None
    # load all models first: an unreadable one must fail before the others are measured
    models = labelled(args.models)
    loaded = {label: _load(label, path, args) for label, path in models.items()}
    results: dict[str, Any] = {}
    for label, (encoder, tokenizer) in loaded.items():
        cached = CachedEncoder(Encode(encoder, tokenizer, bf16=args.bf16, progress=True))
        start = time.perf_counter()
        results[label] = {name: analysis.measure(cached, material) for name, analysis in chosen.items()}
        logger.info("%s: measured in %.1f s", label, time.perf_counter() - start)
    sources = {name: material.read_by(analysis) for name, analysis in chosen.items()}
    measured = {label: {"pooling": encoder.pooling, "max_length": encoder.max_length, **results[label]}
                for label, (encoder, _) in loaded.items()}  # fmt: skip
    content = {"data": sources, "models": measured}
    try:
        if output:
            write(output, content, list(chosen))
    finally:  # also if the files cannot be written
        show(table(results, chosen), output)
    return content


def table(results: dict[str, dict[str, dict]], chosen: dict[str, Analysis]) -> str:
    """The headline numbers as Markdown: one line per number, one column per model."""
    body = [["", *results]]
    for name, analysis in chosen.items():
        body += [[title, *cells] for title, cells in analysis.lines([model[name] for model in results.values()])]
    return markdown(body)


def write(folder: Path, content: dict[str, Any], names: Sequence[str]) -> None:
    with writing(folder / "analyses.json") as part:
        part.write_text(json.dumps(content, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
    for name in names:
        results = {label: model[name] for label, model in content["models"].items()}
        draw(CHARTS[name](results, content["data"][name]), folder / f"{name}.png")
    logger.info("%s: analyses.json, %s", folder, ", ".join(f"{name}.png" for name in names))


def _output(path: str) -> Path:
    """The folder of `--output`; BadInput if its analyses.json is another one."""
    folder = output_folder(path)
    if (written := folder / "analyses.json").exists():
        read_json(written, "the numbers of analyses", "choose another --output", fields={"data": dict, "models": dict})
    return folder


def _load(label: str, path: str, args: argparse.Namespace) -> tuple[SentenceEncoder, Any]:
    plain = read_modules(path) is None
    encoder, tokenizer = load_encoder(path, args.pooling if plain else None, args.max_length)
    encoder.to(device_here())
    own = "" if plain or not args.pooling else ", its own: --pooling is for plain encoders"
    logger.info("%s: %s, pooling %s%s, at most %d tokens", label, path, encoder.pooling, own, encoder.max_length)
    return encoder, tokenizer


if __name__ == "__main__":
    run_command(main)
