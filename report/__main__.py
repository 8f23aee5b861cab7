"""`python -m report RUN [RUN ...]`: compare runs in one self-contained HTML file."""

import logging
import sys
from pathlib import Path

from common.errors import BadInput, run_command
from common.files import writing
from common.flags import Parser, check_output
from eval.labels import labelled
from report import LIMIT, MARK
from report.runs import read_run_folder

SCORES = "scores.json"  # as `python -m eval RUN --output RUN/scores.json` writes it
logger = logging.getLogger(__name__)


def parser() -> Parser:
    p = Parser(
        prog="python -m report",
        description="Write one HTML file about one or several runs: facts, curves, scores with 95 % intervals, the\n"
        "geometry of the vectors, and a search for nearest neighbours.\n\n"
        "The file contains sentences and their vectors, from --sentences, --dev_file, or STS-B in --data_dir.\n"
        "Check that their terms allow publication before you publish it.",
        epilog="examples:\n"
        "  python -m report runs/infocse\n"
        "  python -m report SimCSE=runs/simcse InfoCSE=runs/infocse --output runs/both.html\n"
        "  python -m report runs/infocse --sentences my_sentences.txt --dev_file my_pairs.tsv",
    )
    p.add_argument("runs", nargs="+", metavar="[NAME=]RUN", help="run folder; NAME labels it on the page (default: the "
                   "end of the path). The first run is the baseline")  # fmt: skip
    p.add_argument("--output", default="report.html", help="the file to write")
    p.add_argument("--sentences", metavar="FILE",
                   help=f"one sentence per line, for the search and the spectrum; the first {LIMIT:,} distinct ones "
                   "are used (default: those of the pairs)")  # fmt: skip
    p.add_argument("--data_dir", default="corpora", help="folder with senteval/downstream")
    p.add_argument("--dev_file", help="pairs to use instead of STS-B: tab-separated, header sentence1, sentence2, "
                   "score")  # fmt: skip
    p.add_argument("--scores", default=SCORES, metavar="NAME",
                   help="score file in each run folder, shown with the search scores (default: scores.json; "
                   "`python -m papers` writes sts.json)")  # fmt: skip
    p.add_argument("--bf16", action="store_true", help="encode in bfloat16 autocast: faster, slightly different")
    return p


def main(argv: list[str] | None = None) -> Path:
    """Run the command and return the file it wrote."""
    args = parser().parse_args(argv)
    folders = labelled(args.runs)
    if args.scores != SCORES and not any((Path(path) / args.scores).is_file() for path in folders.values()):
        raise BadInput(f"--scores {args.scores}: no run folder has this file; check the name, or leave the flag out")
    runs = [read_run_folder(label, Path(path), args.scores) for label, path in folders.items()]
    output = Path(args.output)
    if not output.parent.is_dir():
        raise BadInput(f"--output {output}: its folder does not exist; create it first")
    check_output(args.output, [args.sentences, args.dev_file], MARK)
    from eval.sts import own_pairs  # these import torch; flags are checked first
    from eval.tasks import Options, tasks_named
    from report.measures import measure, read_texts
    from report.page import page
    from report.score_table import score_rows

    own = [own_pairs(args.dev_file)] if args.dev_file else []
    stsb = [tasks_named(["STS-B"], Options(split))[0] for split in ("test", "dev")]
    texts = read_texts(own or stsb, args.data_dir, args.sentences)
    encoders = {}
    for number, (label, path) in enumerate(folders.items()):
        if len(texts.searched) > 1 and (encode := _encoder(path, args.bf16)):
            encoders[number] = (label, encode)
    measured = measure(encoders, texts)
    content = page(runs, score_rows(runs), texts, measured).encode("utf-8", "replace")
    with writing(output, "choose another --output") as part:
        part.write_bytes(content)
    logger.info("%s: %d run%s, %.1f MB", output, len(runs), "s" if len(runs) > 1 else "", len(content) / 1e6)
    return output


def _encoder(path: str, bf16: bool):
    """The run's `Encode`; None if there is no model yet, or a stage 1 without sentence vectors."""
    from eval.encode import Encode, device_here
    from models.encoder import load_encoder
    from models.saved_format import read_modules

    if not (Path(path) / "model.safetensors").is_file() or read_modules(path) is None:
        return None
    encoder, tokenizer = load_encoder(path)
    encoder.to(device_here())
    return Encode(encoder, tokenizer, bf16=bf16, progress=sys.stderr.isatty())


if __name__ == "__main__":
    run_command(main)
