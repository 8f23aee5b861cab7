"""The quickstart: deterministic text, graded by formula and without leakage; both stages learn."""

import pandas as pd
import pytest

from common.files import digest
from examples import quickstart as command
from examples.grammar import CONCEPTS, LEXICON, WEIGHTS, generate, gold
from tests.refusals import refused

MEANINGS = {
    phrase.rpartition(":")[2]: ("" if slot in LEXICON["shared"] else topic, slot, name)
    for (topic, slot), concepts in CONCEPTS.items()
    for name, phrases in concepts.items()
    for phrase in phrases
}


def parse(sentence):
    """Parse a sentence back to its frame."""
    frame = {}
    for topic, slot, name in (MEANINGS[word] for word in sentence.split() if word in MEANINGS):
        frame[slot] = name
        if topic:
            frame["topic"] = topic
    return frame


def frames(sentences):
    return {frozenset(parse(sentence).items()) for sentence in sentences}


def test_the_text_is_that_of_the_reported_scores_and_no_meaning_is_in_two_parts():
    made = generate(0, 3000, 450)
    parts = [made[part] for part in ("sentences", "dev", "test", "running")]
    assert digest(parts) == "8df3cc459dec1e73411c8f4556bc1a2fbd5850386c30020c6cde0ab35e0d65b6"
    training = frames(made["sentences"])
    training |= frames(line for text in made["running"] for line in text.split(" . "))
    dev, test = (frames(s for pair in made[part] for s in pair[:2]) for part in ("dev", "test"))
    assert len(training) > 1000 and not training & (dev | test) and not dev & test


def test_gold_by_hand():
    frame = parse(generate(3, 10, 9)["sentences"][0])
    assert gold(frame, frame) == 5.0
    bare = {name: frame[name] for name in ("topic", "agent", "action", "object", "place")}
    assert gold(frame, dict.fromkeys(bare, "x")) == 0.0
    # One of four core slots differs: the object weighs 3 of 11; 5 * (0.2 + 0.8 * (8 / 11) ** 2) =
    # 3.1.
    assert sum(WEIGHTS[slot] for slot in bare if slot != "topic") == 11
    assert gold(bare, bare | {"object": "x"}) == 3.1


def test_two_steps_of_every_run_give_a_table_a_figure_and_neighbours(tmp_path, capsys, monkeypatch):
    monkeypatch.setattr(command, "generate", lambda seed, *_: generate(seed, 600, 60))
    monkeypatch.setattr(command, "SEEDS", 1)
    runs = tmp_path / "runs"
    (runs / "my-notes").mkdir(parents=True)  # no run of this command
    flags = ["--max_steps=2", f"--corpus={tmp_path / 'toy'}", f"--runs={runs}"]
    rows = command.main(flags)
    assert list(dict.fromkeys(row["model"] for row in rows)) == ["stage 1", "SimCSE", "InfoCSE"]
    again = [{**row, "run": "1"} for row in rows if row["model"] == "InfoCSE"]
    assert command.table(rows + again).count(" ± 0.00 ") == 2
    shown = capsys.readouterr().out
    assert "network hardly conditions on [CLS]" in shown and "show no order" in shown
    assert shown.count("\n  0.") + shown.count("\n  1.") == 9
    assert "infocse-0" in (runs / "report.html").read_text(encoding="utf-8")
    before = (runs / "infocse-0" / "run.json").read_bytes()
    assert command.main(flags) == rows and (runs / "infocse-0" / "run.json").read_bytes() == before


def test_a_folder_with_results_of_another_command_is_refused(tmp_path):
    (tmp_path / "scores.json").write_text("[]")
    places = [f"--runs={tmp_path}", f"--corpus={tmp_path / 'toy'}"]
    assert "scores.json" in refused(command.main, places)
    assert [path.name for path in tmp_path.iterdir()] == ["scores.json"]


@pytest.mark.slow
@pytest.mark.parametrize("seed", [1, 2])
def test_the_network_conditions_on_cls_and_both_methods_gain(seed, tmp_path, capsys):
    places = [f"--corpus={tmp_path / 'toy'}", f"--runs={tmp_path / 'runs'}"]
    rows = command.main([f"--seed={seed}", *places])
    assert "the auxiliary network conditions on [CLS]" in capsys.readouterr().out
    worst = pd.DataFrame(rows).groupby(["model", "task"])["value"].min()
    assert worst[["SimCSE", "InfoCSE"]].min() >= 40  # random weights have about 13
