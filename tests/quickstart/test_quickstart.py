"""The quickstart: its text is deterministic, graded by formula and without leakage, and its two stages learn."""

import pytest

import quickstart.generate
from common.errors import BadInput
from common.files import digest
from quickstart import __main__ as command
from quickstart.generate import CONCEPTS, LEXICON, Frame, frame_key, generate, gold

MEANINGS = {
    phrase.rpartition(":")[2]: ("" if slot in LEXICON["shared"] else topic, slot, name)
    for (topic, slot), concepts in CONCEPTS.items()
    for name, phrases in concepts.items()
    for phrase in phrases
}


def parse(sentence: str) -> Frame:
    """Parse a sentence back to its frame."""
    values = {}
    for topic, slot, name in (MEANINGS[word] for word in sentence.split() if word in MEANINGS):
        values[slot] = name
        if topic:
            values["topic"] = topic
    return Frame(**values)


@pytest.fixture(scope="module")
def made():
    return generate(0, 3000, 450)


def test_the_text_is_the_one_that_the_reported_scores_are_of(made):
    assert digest(made) == "8df3cc459dec1e73411c8f4556bc1a2fbd5850386c30020c6cde0ab35e0d65b6"


def test_no_meaning_of_dev_or_test_is_in_the_training_text_in_any_wording(made):
    training = {frame_key(parse(sentence)) for sentence in made.sentences}
    training |= {
        frame_key(parse(sentence)) for line in made.running_text for sentence in line.split(" . ")
    }
    parts = [
        {
            frame_key(parse(sentence))
            for pair in pairs
            for sentence in (pair.sentence1, pair.sentence2)
        }
        for pairs in (made.dev, made.test)
    ]
    assert len(training) > 1000
    assert not training & (parts[0] | parts[1])
    assert not parts[0] & parts[1]


def test_scores_follow_the_formula_and_cover_the_scale(made):
    for pair in made.dev:
        assert pair.score == gold(parse(pair.sentence1), parse(pair.sentence2))
        assert pair.sentence1 != pair.sentence2
    assert {round(pair.score) for pair in made.dev} >= {0, 1, 2, 4, 5}


def test_gold_by_hand():
    frame = parse(generate(3, 10, 9).sentences[0])
    assert gold(frame, frame) == 5.0
    bare = frame._replace(tool=None, time=None, manner=None, quality=None)
    assert (
        gold(frame, bare._replace(topic="elsewhere", agent="x", action="x", object="x", place="x"))
        == 0.0
    )
    # One of four core slots differs: the object weighs 3 of 11; 5 * (0.2 + 0.8 * (8 / 11) ** 2) =
    # 3.1.
    assert gold(bare, bare._replace(object="x")) == 3.1


def test_two_steps_of_every_run_give_a_table_a_figure_and_neighbours(tmp_path, capsys, monkeypatch):
    monkeypatch.setattr(
        quickstart.generate, "generate", lambda seed, sentences, pairs: generate(seed, 600, 60)
    )
    monkeypatch.setattr("training.stages.draw", lambda *_: None)
    monkeypatch.setattr(command, "SEEDS", 1)
    flags = [
        "--max_steps=2",
        f"--corpus={tmp_path / 'toy'}",
        f"--runs={tmp_path / 'runs'}",
        "--sentences",
        "a dog",
    ]
    rows = command.main(flags)
    assert [*rows] == ["word overlap", "untrained", "stage 1", "SimCSE", "InfoCSE"]
    assert command.table({"InfoCSE": rows["InfoCSE"] * 2}).count(" ± 0.00 ") == 2
    shown = capsys.readouterr().out
    assert (
        "the auxiliary network hardly reads the sentence vector" in shown and "InfoCSE is " in shown
    )
    assert (
        shown.count("\n  0.") == 3
        and (tmp_path / "runs" / "quickstart.png").stat().st_size > 10_000
    )
    before = (tmp_path / "runs" / "infocse-0" / "run.json").read_bytes()
    assert (
        command.main(flags) == rows
        and (tmp_path / "runs" / "infocse-0" / "run.json").read_bytes() == before
    )


def test_a_folder_with_results_of_another_command_is_refused(tmp_path):
    (tmp_path / "scores.json").write_text("[]")
    with pytest.raises(BadInput, match=r"scores\.json"):
        command.main([f"--runs={tmp_path}", f"--corpus={tmp_path / 'toy'}"])
    assert [path.name for path in tmp_path.iterdir()] == ["scores.json"]


@pytest.mark.slow
@pytest.mark.parametrize("seed", [1, 2])
def test_the_network_reads_and_both_methods_are_above_the_untrained_model(seed, tmp_path, capsys):
    rows = command.main(
        [f"--seed={seed}", f"--corpus={tmp_path / 'toy'}", f"--runs={tmp_path / 'runs'}"]
    )
    assert "the auxiliary network reads the sentence vector" in capsys.readouterr().out
    for part in (0, 1):  # dev, test
        untrained = rows["untrained"][0][part]["value"]
        assert all(
            run[part]["value"] >= untrained + 20
            for name in ("SimCSE", "InfoCSE")
            for run in rows[name]
        )
