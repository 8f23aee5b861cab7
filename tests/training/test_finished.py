"""What tells a finished run from another one before anything large is imported."""

import pytest

from common.declared import Flag
from training.finished import inputs_of

FLAGS = {"train_file": Flag("list[str]", "", ""), "seed": Flag("int", "42", "")}


@pytest.fixture
def words(tmp_path):
    for name in ("text.txt", "docs/a/one.txt", "data/dev.tsv", "data/senteval/sts.csv", "out/log.jsonl", "beside.txt"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text("some text\n")
    (tmp_path / "beside").mkdir()
    (tmp_path / "beside/three.txt").write_text("some text\n")
    (tmp_path / "docs/link").symlink_to(tmp_path / "beside")
    named = {"train_file": tmp_path / "*.tx[t]", "dev_file": "dev.tsv", "model_name_or_path": tmp_path / "docs",
             "data_dir": tmp_path / "data", "output_dir": tmp_path / "out"}  # fmt: skip
    return [word for name, value in named.items() for word in (f"--{name}", str(value))]


def test_the_same_command_on_the_same_files_has_the_same_inputs(words):
    assert inputs_of(words, FLAGS) == inputs_of(words, FLAGS) is not None
    assert len({inputs_of(each, FLAGS) for each in (words, [*words, "--seed=1"], [*words, "--bf16"])}) == 3


@pytest.mark.parametrize(
    "name", ["text.txt", "docs/a/one.txt", "data/dev.tsv", "data/senteval/sts.csv", "beside/three.txt"]
)
def test_a_changed_file_changes_the_inputs(words, tmp_path, name):
    before = inputs_of(words, FLAGS)
    (tmp_path / name).write_text("same size\n")
    assert inputs_of(words, FLAGS) != before
    (tmp_path / name).unlink()
    assert inputs_of(words, FLAGS) not in (None, before)


def test_the_command_line_s_data_dir_counts_not_the_configuration_s(words, tmp_path):
    words = ["--data_dir=elsewhere", *words]
    before = inputs_of(words, FLAGS)
    (tmp_path / "data/dev.tsv").write_text("other pairs\n")
    assert inputs_of(words, FLAGS) != before


def test_a_new_file_in_an_input_folder_changes_the_inputs_and_output_files_do_not(words, tmp_path):
    before = inputs_of(words, FLAGS)
    (tmp_path / "out/log.jsonl").write_text("more")
    assert inputs_of(words, FLAGS) == before
    (tmp_path / "docs/a/two.txt").write_text("new")
    assert inputs_of(words, FLAGS) != before


def test_another_default_or_launcher_is_another_run(words, monkeypatch):
    before = inputs_of(words, FLAGS)
    assert inputs_of(words, FLAGS | {"seed": Flag("int", "43", "")}) != before
    monkeypatch.setenv("ACCELERATE_MIXED_PRECISION", "bf16")
    assert inputs_of(words, FLAGS) != before


def test_inputs_without_a_known_list_of_files_have_no_hash(words, tmp_path, monkeypatch):
    assert inputs_of([*words, "--dataset_name=owner/name"], FLAGS) is None
    for name in ("around", "again"):
        (tmp_path / "docs/a" / name).symlink_to(tmp_path / "docs")
    monkeypatch.setattr("training.finished._MAX_FILES", 300)
    assert inputs_of(words, FLAGS) is None
    for name in ("around", "again"):
        (tmp_path / "docs/a" / name).unlink()
    assert inputs_of(words, FLAGS) is not None
    monkeypatch.setattr("training.finished._MAX_FILES", 3)
    assert inputs_of(words, FLAGS) is None
    monkeypatch.undo()
    monkeypatch.setenv("WORLD_SIZE", "1")
    assert inputs_of(words, FLAGS) is None
