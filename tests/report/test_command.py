"""`python -m report`: what stands on the page, in whatever state the runs are."""

import json
import re
import shutil
from html.parser import HTMLParser

import numpy as np
import pytest

from eval.compare.intervals import compare
from eval.dev import BETTER, judged
from eval.scores import AVERAGE
from report import MARK
from report.__main__ import main
from report.runs import facts, read_run_folder
from report.score_table import headline, score_rows
from tests.eval.toys import scored
from tests.folders import run_record
from tests.refusals import refused

from .conftest import write_run

VOID = {"meta", "input", "hr", "br", "img", "link"}
HOSTILE = """</script><script>alert(1)</script><img src=x onerror=alert(2)> & "quoted" 'single' """
HOSTILE += "<!-- {{ 7 * 7 }} {% raw %} é"


def test_a_resumed_run_names_what_every_start_ran_on():
    earlier = {"commit": "a" * 40, "versions": {"torch": "1.0"}, "hardware": {"device": "NVIDIA X"}}
    shown = facts(run_record() | {"earlier_starts": [earlier]})
    assert shown["device"] == "NVIDIA X; then cpu"
    assert shown["commit"] == "aaaaaaaaaaaa; then efefefefefef, 2 changed files"
    assert shown["versions"] == "torch 1.0; then python 3.11.7, torch 2.13.0"


def test_checkpoints_of_one_name_are_told_apart():
    shown = []
    for digit in "ab":
        record = run_record()
        record["settings"] = record["settings"] | {"model_name_or_path": f"runs/{digit}/best"}
        record["trajectory"] = record["trajectory"] | {"start": digit * 64}
        shown.append(facts(record)["checkpoint"])
    assert shown == ["best (aaaaaaaaaaaa)", "best (bbbbbbbbbbbb)"]
    record["settings"].pop("model_name_or_path")
    assert facts(record)["checkpoint"] == "not recorded"


class Page(HTMLParser):
    """Sections as text, elements counted, all tags closed in order."""

    def __init__(self, path):
        super().__init__(convert_charrefs=True)
        self.source = path.read_text(encoding="utf-8")
        self.open, self.names, self.section = [], [], ""
        self.texts, self.attributes = {}, []
        self.feed(self.source)
        self.close()
        assert not self.open

    def handle_starttag(self, name, attributes):
        self.names.append(name)
        self.attributes += attributes
        if name == "section":
            self.section = dict(attributes)["id"]
        if name not in VOID:
            self.open.append(name)

    def handle_endtag(self, name):
        assert self.open.pop() == name

    def handle_data(self, data):
        if self.open and self.open[-1] != "style":
            self.texts[self.section] = self.texts.get(self.section, "") + " " + data


@pytest.fixture(scope="module")
def both(trained, tmp_path_factory):
    """Arguments of a report of two runs, and what they write."""
    arguments = [f"one={trained[0]}", f"two={trained[1]}", "--output"]
    return arguments, main([*arguments, str(tmp_path_factory.mktemp("report") / "r.html")])


def test_two_runs_side_by_side_with_every_section(both, trained):
    page = Page(both[1])
    assert [name for name in page.texts if name] == ["runs", "training", "scores"]
    assert page.texts["runs"].count("simcse") == 1, "they differ in nothing"
    for words in ("mine.txt (1,234 rows)", "efefefefefef, 2 changed files", "mini-bert"):
        assert words in page.texts["runs"]
    for words in ("80.92 at step 375", "python 3.11.7, torch 2.13.0"):
        assert words in page.texts["runs"]
    verdict = r"two (is better than|is worse than|cannot be told apart from) one: pairs file "
    assert re.search(verdict, page.texts[""])
    assert page.texts["scores"].count("baseline ") == 1
    assert page.names.count("figure") == 2, "a loss term, the dev score"
    for folder in trained:
        value = json.loads((folder / "scores.json").read_text())[0]["value"]
        assert f"{value:.2f}" in page.texts["scores"]
    assert len(re.findall(r"[+-]\d+\.\d\d to [+-]\d+\.\d\d", page.texts["scores"])) == 1


def test_what_differs_between_runs_is_marked_and_the_rest_is_folded(tmp_path):
    folders = []
    for name, temperature in {"a": 0.05, "b": 0.07}.items():
        record = run_record() | {"findings": [f"said by {name}"]}
        record["settings"] |= {"max_length": 32, "aux_weight": 1e-5, "temperature": temperature}
        record["settings"] |= {"rtd_weight": 0.005, "hard_negative_weight": 0.0}
        folders.append(str(write_run(tmp_path / name, record)))
    places = ["--output", str(tmp_path / "r.html")]
    page = Page(main([*folders, *places]))
    assert page.source.count("<mark>") == 1
    assert "<td>0.05</td><td><mark>0.07</mark></td>" in page.source
    folded = re.search(r"same in every run: (.*?)</summary>.*?</details>", page.source, re.DOTALL)
    names = {"maximum length in tokens", "weights of the losses (lambda)"}
    assert names <= {*folded[1].split(", ")} and "temperature" not in folded[0]
    weights = "<td>aux_weight 1e-05, rtd_weight 0.005</td>"
    assert weights in folded[0] and "<td>32</td>" in folded[0]
    assert "a: said by a." in page.texts[""] and "b: said by b." in page.texts[""]
    assert "summary" not in Page(main([folders[0], *places])).names, "one run has nothing to fold"


def test_the_page_needs_nothing_else_and_tells_no_path(both, trained):
    page = Page(both[1])
    assert not {"link", "iframe", "object", "script"} & set(page.names)
    for name, value in page.attributes:
        assert not name.startswith("on")
        assert name != "src" or value.startswith("data:image/svg+xml;base64,")
        assert name != "href" or value.startswith("#")
    for word in ("http:", "https:", "secret", "/tmp", str(trained[0].parent)):
        assert word not in page.source
    policy = "default-src 'none'; img-src data:; style-src 'unsafe-inline'"
    assert dict(page.attributes)["content"] == policy


def test_hostile_texts_are_shown_and_do_nothing(tmp_path, trained):
    folder = write_run(tmp_path / "runs" / "<b>&\"'")
    record = json.loads((folder / "run.json").read_text())
    record["settings"]["method"] = record["versions"][HOSTILE] = HOSTILE
    line = {"step": 1, HOSTILE: 1.0}
    write_run(folder, record, [line, {**line, "step": 2}])
    rows = json.loads((trained[0] / "scores.json").read_text())
    (folder / "scores.json").write_text(json.dumps([{**rows[0], "task": HOSTILE}]))
    page = Page(main([str(folder), "--output", str(tmp_path / "r.html")]))
    assert "script" not in page.names
    assert page.names.count("img") == page.names.count("figure")
    for section in ("runs", "training", "scores"):
        assert HOSTILE in page.texts[section], section
    assert "<b>&\"'" in page.texts["runs"]


def test_missing_pieces_are_said(tmp_path, trained):
    record = {"format": 1, "status": "running", "settings": {}, "trajectory": {}}
    young = write_run(tmp_path / "young", record, log=[])
    (young / "log.jsonl").unlink()
    (young / "scores.json").write_text("[\n\n]\n")  # as of --test_tasks none
    words = [f"old={trained[1]}", str(young), "--output", str(tmp_path / "r.html")]
    page = Page(main(words))
    assert "log.jsonl missing or empty: young." in page.texts["training"]
    assert "No scores: young." in page.texts["scores"] and "missing" in page.texts["scores"]
    assert "not recorded" in page.texts["runs"]
    assert page.texts["runs"].split().count("none") == 2, "temperature and weights"
    shutil.copy(trained[0] / "scores.json", young / "own.json")
    assert "No scores" not in Page(main(words)).texts["scores"]


def test_a_page_replaces_pages_of_this_command_only(both, tmp_path):
    assert both[1].read_bytes().startswith(MARK)
    theirs, run = tmp_path / "theirs.html", write_run(tmp_path / "one")
    theirs.write_text("<!doctype html><title>mine</title>")
    said = refused(main, [str(run), "--output", str(theirs)])
    assert "has content this command did not write" in said


def make(folder, noise):
    """A run whose similarities are the gold scores and noise."""
    gold = np.random.default_rng(1).uniform(0, 5, 80)
    noises = noise * np.random.default_rng(int(100 * noise)).normal(size=(2, 80))
    cosines = dict(zip(("STS-B", "SICK-R"), gold + noises, strict=True))
    write_run(folder)
    scored(folder.parent, folder.name, cosines, dict.fromkeys(cosines, gold))
    return read_run_folder(folder.name, folder)


def test_every_later_run_is_compared_with_the_first_as_by_eval_compare(tmp_path):
    runs = [make(tmp_path / "a", 1.0), make(tmp_path / "b", 1.1), make(tmp_path / "c", 0.1)]
    rows = dict(score_rows(runs))
    assert [key.task for key in rows] == ["STS-B", "SICK-R", AVERAGE]
    for line in compare(runs[1].scores, runs[0].scores):
        first, second, third = rows[line.key]
        assert first.line is None and (second.value, second.line) == (line.a.mean, line)
        assert second.range == (line.outcome.low, line.outcome.high)
        assert (second.verdict, third.verdict) == (judged(*second.range), BETTER)
    first, _, third = rows[next(reversed(rows))]
    said = headline("abc", list(rows.items()))
    assert said[1].startswith(f"c is better than a: Avg. {first.value:.2f} -> {third.value:.2f} (+")
    assert headline("ca", score_rows(runs[::-2]))[0].startswith("a is worse than c: Avg. ")
