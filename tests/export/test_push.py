"""To the hub and back, against a stand-in; what is refused or cut ends in one clear line."""

from pathlib import Path

import pytest
from huggingface_hub import hf_hub_download

from common.errors import BadInput
from export.__main__ import main

REPO = "someone/a-model"


def files_of(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


@pytest.fixture
def push(make_run, tmp_path):
    def push(*flags, output="out", **kinds):
        run = make_run(name=f"run-of-{output}", **kinds)
        main([str(run), "--output", str(tmp_path / output), "--push_to_hub", REPO, *flags])
        return tmp_path / output

    return push


def test_what_is_pushed_is_read_back_equal(hub, push, tmp_path):
    folder = push("--private")
    exported = files_of(folder)
    assert hub.repos[REPO] == exported
    assert hub.visibility[REPO] == "private"
    assert {"README.md", "model.safetensors", "1_Pooling/config.json"} <= set(exported)
    for name in ("model.safetensors", "README.md"):
        back = hf_hub_download(REPO, name, endpoint=hub.endpoint, local_dir=tmp_path / "back")
        assert Path(back).read_bytes() == exported[name]
    assert f'SentenceTransformer("{REPO}")' in exported["README.md"].decode()


def test_a_second_push_replaces_what_the_first_left(hub, push):
    push("--private", pooling="cls", head="linear_tanh")
    hub.repos[REPO]["notes.txt"] = b"by hand"
    assert "2_Dense/config.json" in hub.repos[REPO]
    folder = push(output="second", pooling="avg_top2")  # has no head
    assert hub.repos[REPO] == files_of(folder) | {"notes.txt": b"by hand"}
    assert hub.visibility[REPO] == "private"


def test_a_refused_token_is_said_and_not_shown(hub, push, tmp_path, monkeypatch):
    monkeypatch.setenv("HF_TOKEN", "hf_" + "wrong" * 5)
    with pytest.raises(BadInput, match=rf"cannot push to {REPO}: .*401.*HF_TOKEN") as caught:
        push()
    assert "wrong" not in str(caught.value) and hub.repos == {}
    assert "README.md" in files_of(tmp_path / "out")


def test_a_connection_lost_in_a_file_leaves_the_export_whole_and_no_commit(hub, push, tmp_path):
    hub.cut = True
    with pytest.raises(BadInput, match=r"cannot push to .*hf upload") as caught:
        push()
    assert "\n" not in str(caught.value)
    assert hub.commits == []
    assert hub.repos[REPO] == {}
    hub.cut = False
    again = push(output="again")
    first, second = files_of(tmp_path / "out"), files_of(again)
    assert first == second  # the card too: it names the repository, not the folder
    assert hub.repos[REPO] == files_of(again)
    assert not [path for path in tmp_path.iterdir() if "partial" in path.name]


@pytest.mark.parametrize("repo", ["no-owner", "a/b/c"])
def test_a_name_that_is_none_is_refused_before_anything_is_written(repo, make_run, tmp_path):
    with pytest.raises(BadInput, match="--push_to_hub"):
        main([str(make_run()), "--output", str(tmp_path / "out"), "--push_to_hub", repo])
    assert not (tmp_path / "out").exists()
