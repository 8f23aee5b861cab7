"""`python -m export RUN --output DIR`: write a model and its card for publication."""

import logging
from pathlib import Path

import infocse
from common.errors import BadInput, run_command
from common.flags import Parser, add_pooling
from common.folders import filling
from eval.scores import scores_of
from export.card import Model, card
from export.facts import read_facts
from export.hub import push
from models.saved_format import read_modules
from search.recipe import Recipe

logger = logging.getLogger(__name__)


def parser() -> Parser:
    p = Parser(
        prog="python -m export",
        description="Write a model for transformers, sentence-transformers and this project, with "
        "a model card.",
        epilog="examples:\n"
        "  python -m export runs/infocse --output exports/infocse\n"
        "  python -m export runs/infocse --output exports/infocse --push_to_hub OWNER/infocse "
        "--private\n\n"
        "HF_TOKEN, HF_ENDPOINT and HF_HUB_OFFLINE work as usual. The card shows file names, but\n"
        "no paths and no training text; read it before you publish it.",
    )
    p.add_argument(
        "run", metavar="RUN", help="a finished run, or any model folder (with a shorter card)"
    )
    p.add_argument("--output", required=True, metavar="DIR", help="a new or empty folder")
    add_pooling(p)
    p.add_argument(
        "--push_to_hub",
        metavar="REPO",
        help="OWNER/NAME: create the repository if needed and upload",
    )
    p.add_argument(
        "--private", action="store_true", help="with --push_to_hub: make a new repository private"
    )
    return p


def main(argv: list[str] | None = None) -> None:
    """Read the run, write the folder, push it.

    Raises:
        BadInput: another pooling than the model's, or scores of other settings or prompts.
    """
    args = parser().parse_args(argv)
    if args.push_to_hub and "/" not in args.push_to_hub:
        raise BadInput(f"--push_to_hub {args.push_to_hub}: give OWNER/NAME")
    facts, output = read_facts(Path(args.run)), Path(args.output)
    before = read_modules(args.run) if args.pooling else None
    if before is not None and (before.pooling != args.pooling or before.head):
        raise BadInput(
            f"--pooling {args.pooling}: '{args.run}' states its pooling, {before.pooling}; leave "
            "it out"
        )
    with filling(output) as folder:
        encoder, tokenizer = infocse.load(args.run, args.pooling)
        used = {"pooling": encoder.pooling, "max_length": encoder.max_length}
        for name, value in used.items():  # older rows do not record them
            if other := {row.get(name, value) for row in facts.rows} - {value}:
                scores = scores_of(Path(args.run))
                said = f"scored with {name} {other.pop()}, not the model's {value}; score again"
                raise BadInput(f"{scores}: {said}")
        for row in facts.rows:
            for role, prompt in row.get("prompts", {}).items():
                if prompt != encoder.prompt_of(None if role == "default" else role):
                    said = f"scored with the {role} prompt {prompt!r}, not the model's; score again"
                    raise BadInput(f"{scores_of(Path(args.run))}: {said}")
        encoder.save(str(folder), tokenizer)
        if recipe := Recipe.of(args.run):
            recipe.write(folder)
        name = args.push_to_hub.rpartition("/")[2] if args.push_to_hub else output.resolve().name
        shown = "" if output.is_absolute() or ".." in output.parts else str(output)
        model = Model(name, args.push_to_hub, encoder, shown)
        (folder / "README.md").write_text(card(model, facts), encoding="utf-8")
    logger.info("%s: exported", output)
    if args.push_to_hub:
        logger.info("pushed: %s", push(output, args.push_to_hub, args.private))


if __name__ == "__main__":
    run_command(main)
