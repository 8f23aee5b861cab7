"""`python -m report RUN [RUN ...]`: compare runs in one self-contained HTML file."""

import logging
import sys
from pathlib import Path

from common.errors import run_command
from common.files import writing
from common.flags import Parser, check_output
from eval.encode import Encode, device_here
from eval.labels import labelled
from eval.sts import own_pairs
from eval.tasks import Options, tasks_named
from models.encoder import load_encoder
from models.saved_format import read_modules
from report import LIMIT, MARK
from report.measures import measure, read_texts
from report.page import page
from report.runs import read_run_folder
from report.score_table import score_rows

logger = logging.getLogger(__name__)


def parser() -> Parser:
    p = Parser(
        prog="python -m report",
        description="Write one HTML file about one or several runs: facts, curves, scores with 95 % intervals, the\n"
        "geometry of the vectors, and the nearest neighbours of some sentences.\n\n"
        "The file contains sentences from --sentences, --dev_file, or STS-B in --data_dir.\n"
        "Check that their terms allow publication before you publish it.",
        epilog="examples:\n"
        "  python -m report runs/infocse\n"
        "  python -m report SimCSE=runs/simcse InfoCSE=runs/infocse --output runs/both.html\n"
        "  python -m report runs/infocse --sentences my_sentences.txt --dev_file my_pairs.tsv",
    )
    runs = "run folder; NAME labels it on the page (default: the end of the path). The first run is the baseline"
    p.add_argument("runs", nargs="+", metavar="[NAME=]RUN", help=runs)
    p.add_argument("--output", default="report.html", help="the file to write")
    sentences = f"one sentence per line, for neighbours and spectrum; the first {LIMIT:,} distinct ones are used"
    p.add_argument("--sentences", metavar="FILE", help=f"{sentences} (default: those of the pairs)")
    p.add_argument("--data_dir", default="corpora", help="folder with senteval/downstream")
    pairs = "pairs to use instead of STS-B: tab-separated, header sentence1, sentence2, score"
    p.add_argument("--dev_file", help=pairs)
    scores = "score file in each run folder; `python -m papers` writes sts.json"
    p.add_argument("--scores", default="scores.json", metavar="NAME", help=scores)
    return p


def main(argv: list[str] | None = None) -> Path:
    """Run the command and return the file it wrote."""
    args = parser().parse_args(argv)
    check_output(args.output, [args.sentences, args.dev_file], MARK)
    folders = labelled(args.runs)
    runs = [read_run_folder(label, Path(path), args.scores) for label, path in folders.items()]
    stsb = [tasks_named(["STS-B"], Options(split))[0] for split in ("test", "dev")]
    texts = read_texts([own_pairs(args.dev_file)] if args.dev_file else stsb, args.data_dir, args.sentences)
    encoders = {}
    for number, path in enumerate(folders.values()):
        # Without a model yet, or with that of a stage 1, which has no sentence vectors, a run is shown without.
        if (Path(path) / "model.safetensors").is_file() and read_modules(path) and len(texts.searched) > 1:
            encoder, tokenizer = load_encoder(path)
            encoder.to(device_here())
            encoders[number] = Encode(encoder, tokenizer, progress=sys.stderr.isatty())
    measured = measure(encoders, texts)
    content = page(runs, score_rows(runs), texts, measured).encode("utf-8", "replace")
    with writing(Path(args.output), "choose another --output") as part:
        part.write_bytes(content)
    logger.info("%s: %d runs, %.1f MB", args.output, len(runs), len(content) / 1e6)
    return Path(args.output)


if __name__ == "__main__":
    run_command(main)
