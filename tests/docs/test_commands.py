"""Every command of a page runs on tiny data or parses its flags; links and figures are right."""

import re
import shutil
from dataclasses import fields

import pytest

import eval.__main__
from common.arguments import ModelArguments, PretrainArguments, SentenceArguments
from common.old_flags import EVALUATION, TRAINER, TRAINING
from examples.grammar import generate, write
from tests.docs.commands import ROOT, SHORT, blocks, call, check, commands
from training.methods import load_method, method_names
from training.run_arguments import RunArguments

# of runpy, which runs commands here
pytestmark = pytest.mark.filterwarnings("ignore:.*found in sys.modules")
PAGES = [*sorted(ROOT.glob("*.md")), *sorted(ROOT.glob("docs/*.md")), ROOT / "results/README.md"]


@pytest.fixture(scope="session")
def made(tiny_bert, text_file, dev_file, tmp_path_factory):
    """The working folder after `make quickstart`, with the files in capitals of the pages."""
    folder = tmp_path_factory.mktemp("made")
    (folder / "configs").symlink_to(ROOT / "configs")
    write(generate(0, 300, 40), folder / "corpora" / "toy")
    shutil.copytree(tiny_bert, folder / "MODEL")
    (folder / "CORPUS").mkdir()
    for name in ("MY_SENTENCES.txt", "MY_PARAGRAPHS.txt", "MY_QUERIES.txt", "CORPUS/part-0.txt"):
        shutil.copy(text_file, folder / name)
    for name in ("MY_PAIRS.tsv", "MY_TEST_PAIRS.tsv"):
        shutil.copy(dev_file, folder / name)
    (folder / "MY_FOLDER" / "below").mkdir(parents=True)
    lines = text_file.read_text(encoding="utf-8").splitlines()
    for start in range(0, len(lines), 4):
        file = folder / "MY_FOLDER" / ("below" if start % 8 else "") / f"{start}.md"
        file.write_text("\n".join(lines[start : start + 4]), encoding="utf-8")
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        flags = ["--model_name_or_path=MODEL", "--train_file=MY_PARAGRAPHS.txt", "--skip_from=0"]
        flags.append("--output_dir=runs/quickstart/stage-1")
        call(["python", "run_pretrain_aux.py", *flags, *SHORT])
        call(["python", "run_unsup.py", "--config=configs/infocse-quickstart.yaml", *SHORT])
    shutil.copytree(folder / "runs" / "quickstart" / "infocse-0", folder / "RUN")
    return folder


@pytest.mark.parametrize("page", PAGES, ids=lambda path: str(path.relative_to(ROOT)))
def test_every_command_of_a_page_works(page, made, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(shutil.copytree(made, tmp_path / "here", symlinks=True))
    text = page.read_text(encoding="utf-8")
    for command in commands(text):
        try:
            check(command)
        except (AssertionError, SystemExit) as error:
            pytest.fail(f"{page.name}: {command}: {error}\n{capsys.readouterr().err[-500:]}")
    for block in blocks(text, ""):
        shown = re.search(r"^(python|make|accelerate) ", block, re.MULTILINE)
        assert not shown, "mark the block with sh"
    for target in re.findall(r"\]\(([^)#]+)\)", text):
        assert target.startswith("https://") or (page.parent / target).exists(), target


def test_flags_that_replace_those_of_other_repositories_exist():
    methods = [load_method(name).arguments for name in method_names()]
    kinds = (ModelArguments, PretrainArguments, SentenceArguments, RunArguments, *methods)
    known = {field.name for arguments in kinds for field in fields(arguments)}
    for action in eval.__main__.parser()._actions:
        known |= {name.lstrip("-") for name in action.option_strings}
    known |= {"push_to_hub"}  # of export
    page = (ROOT / "docs" / "from_the_old_repositories.md").read_text(encoding="utf-8")
    for name, here in (TRAINING | TRAINER | EVALUATION).items():
        assert {*re.findall(r"--(\w+)", here)} <= known, name
    rows = [*TRAINING.items(), *EVALUATION.items()]
    missing = [name for name, here in rows if f"| `--{name}` | {here} |" not in page]
    missing += [here for here in TRAINER.values() if f"| {here} |" not in page]
    assert not missing, "the page has the lines of common/old_flags.py"
