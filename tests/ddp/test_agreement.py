"""Two processes that differ in a setting both say so, and end before the first step."""

import shutil

import pytest
from safetensors.torch import load_file, save_file

from common.errors import BadInput
from tests.ddp.launch import flags, start_ranks
from training.run_folder import check_agreement

LIMIT = 120  # seconds; one that waited for the other would wait for half an hour


def test_two_processes_that_differ_end_before_the_first_step(tiny_bert, text_file, tmp_path):
    start = shutil.copytree(tiny_bert, tmp_path / "start")
    weights = {name: v * 1.5 for name, v in load_file(start / "model.safetensors").items()}
    save_file(weights, start / "model.safetensors", {"format": "pt"})
    text = tmp_path / "sentences.txt"
    text.write_text(text_file.read_text().replace("dog", "cat"))

    common = {"method": "simcse", "model_name_or_path": tiny_bert, "train_file": text_file}
    common |= {"cache_dir": tmp_path / "cache", "output_dir": tmp_path / "run", "max_steps": 2}
    common["dev"] = "none"
    changes = {"model_name_or_path": start, "train_file": text, "max_steps": 3, "seed": 7}
    changes["learning_rate"] = 1e-3
    both = start_ranks(flags(**common), others=flags(**common | changes, logging_steps=1))
    said = [process.end(LIMIT) for process in both]
    assert [process.poll() for process in both] == [2, 2], said
    for text in said:
        [line] = [line for line in text.splitlines() if line.startswith("error: ")]
        for name in (*changes.keys() - {"train_file"}, "text", "start", "logging_steps"):
            assert f" {name}: " in line, name
        assert "learning_rate: 3e-05, 0.001;" in line
        assert "Traceback" not in text
    assert not [*tmp_path.glob("run/*")]


def test_processes_agree_on_a_model_by_its_files_and_differ_by_rank():
    settings = {"seed": 1, "generator": "here", "text": "t"}
    settings["contents"] = {"generator": {"model.safetensors": "a"}}
    option_of_today = {"bow_weight": None}  # off, as in a record from before it was added
    check_agreement([settings, settings | {"generator": "there"} | option_of_today])
    with pytest.raises(BadInput, match="differ, by rank: seed: 1, 5, 1; text: t, t, u"):
        check_agreement([settings, settings | {"seed": 5}, settings | {"text": "u"}])
