"""`python -m eval.analyse MODEL [MODEL ...]`: the papers' analyses of sentence vectors."""

import logging
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import torch

from common.errors import run_command
from common.files import write_json
from common.flags import Parser, add_encoder, check_output, labelled
from common.streams import show
from eval.analyse.geometry import ABOVE, HEADLINES, alignment, by_gold, lines
from eval.analyse.pictures import draw
from eval.encode import Encode, device_here
from eval.metrics.correlation import spearman
from eval.metrics.cosine import pair_cosines
from eval.scores import markdown
from eval.sts import Pairs, merged, own_pairs
from eval.tasks import Options, Task, tasks_named

logger = logging.getLogger(__name__)


def parser() -> Parser:
    p = Parser(
        prog="python -m eval.analyse",
        description="Analyse the vectors of sentence encoders side by side: print a table of the "
        "main numbers\nand, with --output, write analyses.json with all numbers and a picture of "
        "each analysis.\n\nanalyses:\n"
        "  alignment_uniformity  of positive pairs, against that of all sentences (Wang and Isola; "
        "SimCSE Figure 3)\n"
        "  cosine_by_gold        mean and quartiles of the cosine by gold score (ConSERT Figure 1)",
        epilog="examples:\n"
        "  python -m eval.analyse runs/simcse runs/infocse --output analyses\n"
        "  python -m eval.analyse before=bert-base-uncased after=runs/infocse --pooling "
        "cls_before_pooler",
    )
    models = (
        "run or export folder, Hugging Face encoder or sentence-transformers model; NAME is its "
        "label in tables and pictures (default: end of the path)"
    )
    p.add_argument("models", nargs="+", metavar="[NAME=]MODEL", help=models)
    pictures = "write analyses.json and the pictures to this folder"
    p.add_argument("--output", metavar="DIR", help=pictures)
    p.add_argument("--data_dir", default="corpora", help="folder with senteval/downstream")
    pairs = p.add_mutually_exclusive_group()
    pairs.add_argument("--split", choices=["test", "dev"], default="test", help="STS-B split")
    pairs.add_argument(
        "--dev_file", help="your pairs instead: tab-separated, header sentence1, sentence2, score"
    )
    add_encoder(p)
    return p


def main(argv: list[str] | None = None) -> dict[str, Any]:
    """Run the command and return the content of analyses.json."""
    args = parser().parse_args(argv)
    from models.encoder import load_encoder  # here: --help needs no model
    from models.saved_format import read_modules

    if args.dev_file:
        task: Task = own_pairs(args.dev_file)
    else:
        [task] = tasks_named(["STS-B"], Options(args.split))
    pairs, name = merged(task.load(args.data_dir)), f"{task.name} {task.split}"
    file = Path(args.output) / "analyses.json" if args.output else None
    if file:
        check_output(str(file), [args.dev_file], b'{\n  "data": ')
    loaded = {}  # all models first: an unreadable one must fail before the others are measured
    for label, path in labelled(args.models).items():
        plain = read_modules(path) is None  # --pooling is for plain encoders; others have their own
        encoder, tokenizer = load_encoder(path, args.pooling if plain else None, args.max_length)
        how = f"pooling {encoder.pooling}, at most {encoder.max_length} tokens"
        logger.info("%s: %s, %s", label, path, how)
        loaded[label] = encoder.to(device_here()), tokenizer
    texts, measured = list(dict.fromkeys(pairs.left + pairs.right)), {}
    for label, (encoder, tokenizer) in loaded.items():
        start = time.perf_counter()
        vectors = Encode(encoder, tokenizer, bf16=args.bf16, progress=True)(texts)
        results = measure(dict(zip(texts, vectors, strict=True)), pairs)
        measured[label] = {"pooling": encoder.pooling, "max_length": encoder.max_length, **results}
        logger.info("%s: measured in %.1f s", label, time.perf_counter() - start)
    content = {"data": name, "models": measured}
    if file:
        write_json(file, content)
        for analysis in HEADLINES:
            having = {label: model for label, model in measured.items() if analysis in model}
            if having:
                results = {label: model[analysis] for label, model in having.items()}
                draw(analysis, results, name, file.with_name(f"{analysis}.png"))
    show(markdown([["", *measured], *lines(list(measured.values()))]))
    return content


def measure(vectors: Mapping[str, np.ndarray], pairs: Pairs) -> dict[str, dict]:
    """The analyses of one encoder that the pairs allow: {analysis: JSON-serialisable result}.

    Args:
        vectors: of every text of the pairs, each (D,).
        pairs: scored. Without a pair scored above `ABOVE` there is no alignment.
    """
    from models.contrast import uniformity

    results: dict[str, dict[str, Any]] = {}
    left, right = (np.stack([vectors[text] for text in side]) for side in (pairs.left, pairs.right))
    gold = np.array(pairs.gold)
    positive = gold > ABOVE
    if positive.any():
        distinct = torch.from_numpy(np.stack([*vectors.values()])).double()
        results["alignment_uniformity"] = {
            "alignment": alignment(left[positive], right[positive]),
            "uniformity": float(uniformity(distinct)),
            "positives": int(positive.sum()),
            "sentences": len(distinct),
        }
    similarity = pair_cosines(left, right)
    bins = by_gold(similarity, gold)
    first, last = bins[0]["mean"], bins[-1]["mean"]
    results["cosine_by_gold"] = {
        "spearman": float(spearman(similarity, gold)),
        "gap": None if first is None or last is None else last - first,
        "pairs": len(gold),
        "bins": bins,
    }
    return results


if __name__ == "__main__":
    run_command(main)
