"""`python -m eval.published NAME ...`: published checkpoints, our scores beside theirs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from huggingface_hub import snapshot_download

from common.errors import BadInput, brief, run_command
from common.files import read_rows, read_yaml, sha256, write_json
from common.flags import Parser, check_output
from common.folders import locked
from common.streams import show
from eval.compare.sides import Side, published
from eval.encode import Encode, device_here
from eval.scores import AVERAGE, Key, markdown, rows_of
from eval.sts import WHOLE, StsTask, read_sick
from eval.tasks import Options, score_all, tasks_named
from training.provenance import provenance

CHECKPOINTS = Path(__file__).with_name("checkpoints.yaml")
TOLERANCE = 0.02  # points: what rounding, and other versions and machines, may change
SICK_R = Key("SICK-R", "test", "test", "spearman")
WEIGHTS = "*.safetensors", "pytorch_model*.bin"  # the first that there is
FILE = "a file of `python -m eval.published`"


def checkpoints() -> dict[str, dict[str, Any]]:
    """The entries of checkpoints.yaml by name, with the text of their `source`."""
    content = read_yaml(CHECKPOINTS)
    return {
        entry["name"]: {**entry, "source": content["sources"][entry["source"]]}
        for entry in content["checkpoints"]
    }


def parser() -> Parser:
    p = Parser(
        prog="python -m eval.published",
        description="Score published checkpoints and print our scores beside the published ones.",
        epilog="examples:\n"
        "  python -m eval.published --list\n"
        "  python -m eval.published unsup-simcse-bert-base-uncased infocse-bert-base\n"
        "  python -m eval.published all-MiniLM-L6-v2=MY_COPY --output results/published.json",
    )
    p.add_argument(
        "names",
        nargs="*",
        metavar="NAME[=FOLDER]",
        help="a name of --list, or a local copy of that model",
    )
    p.add_argument(
        "--tasks", nargs="+", choices=["sts", "transfer"], default=["sts"], help="what to score"
    )
    p.add_argument("--data_dir", default="corpora", help="folder with senteval/downstream")
    kept = "checkpoints that are in it and not scored now stay"
    p.add_argument("--output", metavar="FILE.json", default="runs/published.json", help=kept)
    p.add_argument("--list", action="store_true", help="list the checkpoints")
    return p


def main(argv: list[str] | None = None) -> list[dict]:
    """Run the command and return an entry per scored checkpoint."""
    args = parser().parse_args(argv)
    known = checkpoints()
    if args.list or not args.names:
        show(listing(known))
        return []
    chosen = dict(name.partition("=")[::2] for name in args.names)
    if unknown := [name for name in chosen if name not in known]:
        raise BadInput(
            f"unknown checkpoint '{unknown[0]}'; python -m eval.published --list shows all"
        )
    record = Path(args.output)
    check_output(args.output, [], b'[\n  {\n    "name": ')
    for name in chosen:  # a missing file is told before the first model is fetched
        for task in tasks_of(args.tasks, record_of(known[name])):
            task.load(args.data_dir)
    scored = []
    for name, folder in chosen.items():
        entry = score(known[name], folder, args.tasks, args.data_dir)
        with locked(record, wait=True):  # another command may have scored others meanwhile
            entries = {entry["name"]: entry for entry in read_rows(record, FILE)}
            entries[name] = joined(entries.get(name), entry)
            write_json(record, list(entries.values()))
        scored.append(entries[name])
        show(table([entries[name]]))
    return scored


def record_of(entry: Mapping[str, Any]) -> Side | None:
    """The published scores of a checkpoint, if any."""
    return published(entry["record"]) if "record" in entry else None


def tasks_of(groups: Sequence[str], record: Side | None) -> list:
    """The tasks of the groups; SICK-R counts all its pairs if the record's does, as in MTEB."""

    def whole(data_dir: Path) -> dict:
        files = ("SICK_train.txt", "SICK_trial.txt", "SICK_test_annotated.txt")
        train, trial, test = (read_sick(file, data_dir)[WHOLE] for file in files)
        return {WHOLE: train + trial + test}

    tasks = tasks_named(groups, Options(device=device_here()))
    theirs = record.scores.get(SICK_R) if record else None
    if theirs and theirs.examples:
        for number, task in enumerate(tasks):
            if isinstance(task, StsTask) and task.name == "SICK-R":
                tasks[number] = replace(task, read=whole, pairs=theirs.examples)
    return tasks


def score(
    entry: Mapping[str, Any], folder: str, groups: Sequence[str], data_dir: str
) -> dict[str, Any]:
    """Fetch, unless a local copy is given, and score one checkpoint: its entry in the record."""
    from models.encoder import load_encoder  # here: --help needs no model

    path = Path(folder) if folder else fetch(entry["hub"], entry.get("revision"))
    module, tokenizer = load_encoder(str(path), entry.get("pooling"))
    encode = Encode(module.to(device_here()), tokenizer, progress=True)
    record = record_of(entry)
    results = score_all(encode, tasks_of(groups, record), data_dir)
    return {
        **{name: entry.get(name) for name in ("name", "hub", "revision", "note")},
        "commit": None if folder else path.name,
        "sha256": {file.name: sha256(file) for part in WEIGHTS for file in sorted(path.glob(part))},
        "settings": {**encode.settings, "source": entry["source"]},
        "scores": compared(rows_of(results, entry["name"], None), record),
        "provenance": provenance(),
    }


def joined(before: Mapping[str, Any] | None, entry: dict[str, Any]) -> dict[str, Any]:
    """The entry with the scores of other tasks that the same model had before."""
    if before is None or any(before[name] != entry[name] for name in ("sha256", "settings")):
        return entry
    now = {(score["task"], score["metric"]) for score in entry["scores"]}
    others = [score for score in before["scores"] if (score["task"], score["metric"]) not in now]
    return {**entry, "scores": [*others, *entry["scores"]]}


def fetch(model: str, revision: str | None = None, more: Sequence[str] = ()) -> Path:
    """Download a hub id at a revision, `main` if None, and `more` files, unless in the cache.

    Returns its folder, named by commit. BadInput if it does not exist, or the hub does not answer
    and the cache lacks it.
    """
    try:
        for weights in WEIGHTS:
            names = ["*.json", "*.txt", "*.model", weights, *more]
            folder = Path(snapshot_download(model, revision=revision, allow_patterns=names))
            if any(folder.glob(weights)):
                break
    except Exception as error:  # the client raises all kinds of errors
        raise BadInput(f"'{model}' cannot be fetched from the hub: {brief(error)}") from error
    return folder


def compared(rows: Sequence[Mapping[str, Any]], record: Side | None) -> list[dict[str, Any]]:
    """The headline rows with the published figure, the difference, and whether that is nothing.

    The average is left out if the published SICK-R is over other pairs than the papers'.
    """
    theirs = record.scores if record else {}
    no_average = SICK_R in theirs and theirs[SICK_R].examples is not None
    lines = []
    for row in rows:
        key, ours = Key.of(row), round(row["value"], 2)
        if not row["headline"] or (key.task == AVERAGE and no_average):
            continue
        line = {"task": key.task, "metric": key.metric, "n": row["n"], "ours": ours}
        if key in theirs:
            difference = round(ours - theirs[key].mean, 2)
            verdict = "equal" if abs(difference) <= TOLERANCE else "differs"
            line |= {"published": theirs[key].mean, "difference": difference, "verdict": verdict}
            line["source"] = theirs[key].source
        lines.append(line)
    return lines


def listing(known: Mapping[str, Mapping[str, Any]]) -> str:
    """All checkpoints; `python -m eval.compare --list` shows the scores of a published record."""
    body = [["name", "hub id", "revision", "pooling", "published:"]]
    for entry in known.values():
        how = entry.get("revision", "main")[:12], entry.get("pooling", "the model's")
        body.append([entry["name"], entry["hub"], *how, entry.get("record", "-")])
    return markdown(body)


def table(entries: Sequence[Mapping[str, Any]]) -> str:
    """Ours, published, the difference and the verdict, four lines a checkpoint."""
    scored = [(score["task"], score["metric"]) for entry in entries for score in entry["scores"]]
    keys = list(dict.fromkeys(scored))
    titles = []
    for task, metric in keys:
        titles.append(f"{task} {metric}" if (task, metric) == (AVERAGE, "accuracy") else task)
    body = [["checkpoint", "", *titles]]
    lines = {"ours": "{:.2f}", "published": "{:.2f}", "difference": "{:+.2f}", "verdict": "{}"}
    for entry in entries:
        scores = {(score["task"], score["metric"]): score for score in entry["scores"]}
        for name, form in lines.items():
            found = [scores.get(key, {}).get(name) for key in keys]
            cells = ["-" if value is None else form.format(value) for value in found]
            first = entry["name"] if name == "ours" else ""
            body.append([first, name if name != "verdict" else "", *cells])
    return markdown(body)


if __name__ == "__main__":
    run_command(main)
