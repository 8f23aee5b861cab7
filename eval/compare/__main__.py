"""`python -m eval.compare A B`: is the difference between two models more than chance?"""

from common.errors import BadInput, run_command
from common.flags import Parser, check_output
from common.streams import show
from eval.compare.intervals import COLUMNS, NO_EXAMPLES, RESAMPLES, SEED, Interval, Line, compare
from eval.compare.sides import Side, records, side, unlike
from eval.scores import AVERAGE, Key, markdown, write_rows

_NAMED = 5  # missing figures listed by name
MEANING = {
    "bootstrap": f"bootstrap: {RESAMPLES} resamples of the test examples (seed {SEED}). The "
    "interval is about these two models on these test pairs, not about the methods: one run each "
    "says nothing about seeds.",
    "welch": "welch: t interval of the difference of two means over runs, on these test pairs.",
    "prediction": "prediction: A minus B, with the prediction interval from the side whose spread "
    "over runs is known; inside means that seeds alone can explain the difference.",
}


def parser() -> Parser:
    p = Parser(
        prog="python -m eval.compare",
        description="Compare two models, methods or published numbers, with 95 % intervals.",
        epilog="examples:\n"
        "  python -m eval.compare runs/infocse runs/simcse\n"
        "  python -m eval.compare runs/s1,runs/s2 published:simcse-bert-base\n"
        "  python -m eval.compare --list",
    )
    runs = (
        "a run or its scores.json (bootstrap over test examples), several separated by commas, one "
        "per seed (t interval over runs), or published:ID"
    )
    p.add_argument("a", nargs="?", metavar="A", help=runs)
    p.add_argument("b", nargs="?", metavar="B", help="the other side, likewise")
    p.add_argument("--output", help="write the rows to this JSON file")
    p.add_argument("--list", action="store_true", help="list the published records")
    return p


def main(argv: list[str] | None = None) -> list[dict]:
    """Run the command and return the rows it printed."""
    args = parser().parse_args(argv)
    if args.list:
        show(listing())
        return []
    if not args.b:
        parser().error("give two sides: python -m eval.compare A B")
    check_output(args.output, [], b'[\n{"verdict": ')
    a, b = side(args.a), side(args.b)
    if not a.scores.keys() & b.scores.keys():
        raise BadInput(f"{args.a} and {args.b} have no figure in common: score the same tasks")
    lines = compare(a, b)
    rows = [line.row() for line in lines]
    if args.output:
        write_rows(args.output, rows)
    show(report(a, b, lines))
    return rows


def listing() -> str:
    body = [["published:", "backbone", "runs", "STS Avg.", "source"]]
    for name, record in records().items():
        first = next(iter(record.scores.values()))
        score = record.scores.get(Key(AVERAGE, "test", "test", "spearman"))
        body.append([name, str(record.backbone), str(first.runs), str(score or "-"), first.source])
    return markdown(body)


def report(a: Side, b: Side, lines: list[Line]) -> str:
    """The printed report: both sides, the table, what its intervals mean, missing figures."""
    body = [COLUMNS, *(line.cells() for line in lines if line.difference is not None)]
    keys = {line.key for line in lines if line.difference is not None}
    parts = []
    for name, one in (("A", a), ("B", b)):
        sources = dict.fromkeys(score.source for key, score in one.scores.items() if key in keys)
        parts.append(f"{name}: " + "; ".join(filter(None, [one.label, *sources, one.note])))
    parts += ["", markdown(body), ""]
    methods = {line.outcome.method for line in lines if isinstance(line.outcome, Interval)}
    parts += [MEANING[name] for name in MEANING if name in methods]
    if differing := unlike(a.settings, b.settings):
        parts.append(f"A and B were scored differently: {', '.join(differing)}")
    if any(line.verdict.startswith(NO_EXAMPLES) for line in lines):
        parts.append(
            "examples: `python -m eval MODEL --output FILE.json` writes them to FILE.items.npz."
        )
    for reason in ("missing in A", "missing in B"):
        names = [str(line.key) for line in lines if line.outcome == reason]
        more = f" and {len(names) - _NAMED} more" if len(names) > _NAMED else ""
        parts += [f"{reason}: {', '.join(names[:_NAMED])}{more}"] if names else []
    return "\n".join(parts)


if __name__ == "__main__":
    run_command(main)
