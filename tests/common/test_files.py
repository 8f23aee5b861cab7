import pytest

from common.errors import BadInput
from common.files import files_of, find_files
from tests.refusals import refused


def test_files_are_found_as_given_and_below_the_data_folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "corpora" / "text").mkdir(parents=True)
    for name in ("here.txt", "corpora/there.txt", "corpora/text/deep.txt", "corpora/here.txt"):
        (tmp_path / name).write_text("x")
    names = ["here.txt", "there.txt", "text/deep.txt", str(tmp_path / "here.txt")]
    expected = ["here.txt", "corpora/there.txt", "corpora/text/deep.txt", names[-1]]
    assert [*map(str, find_files(names, "corpora"))] == expected
    said = r"'gone\.txt': no file or folder at gone\.txt or at corpora/gone\.txt"
    refused(find_files, ["here.txt", "gone.txt"], "corpora", match=said)


def test_a_folder_is_all_its_files_in_the_order_of_their_paths(tmp_path):
    shards = tmp_path / "corpora" / "shards"
    names = "b/2.txt b/1/deep.txt b.txt a.txt.gz .hidden .git/x c.txt cache/key run/x.txt".split()
    for name in names:
        (shards / name).parent.mkdir(parents=True, exist_ok=True)
        (shards / name).write_text("x")
    (shards / "empty").mkdir()
    written = str(shards / "cache"), shards / "b" / ".." / "run"
    files = [path.relative_to(shards) for path in files_of(shards, written)]
    assert [*map(str, files)] == "a.txt.gz b/1/deep.txt b/2.txt b.txt c.txt".split()
    with pytest.raises(BadInput, match="empty: the folder contains no files"):
        find_files(["shards/empty"], str(tmp_path / "corpora"))


def test_links_in_a_folder_are_followed_once_and_broken_ones_are_not_passed_over(tmp_path):
    for name in ("text/a.txt", "elsewhere/b.txt"):
        (tmp_path / name).parent.mkdir()
        (tmp_path / name).write_text("x")
    (tmp_path / "text" / "linked").symlink_to(tmp_path / "elsewhere")
    (tmp_path / "text" / "gone").symlink_to(tmp_path / "nowhere")

    def names():
        return [str(path.relative_to(tmp_path / "text")) for path in files_of(tmp_path / "text")]

    assert names() == ["a.txt", "gone", "linked/b.txt"]
    (tmp_path / "elsewhere" / "back").symlink_to(tmp_path / "text")
    assert names() == ["a.txt", "gone", "linked/b.txt"]
