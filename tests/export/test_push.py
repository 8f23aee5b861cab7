"""What is given to the hub's own client, and one clear line for what it cannot do."""

from types import SimpleNamespace

import pytest
from huggingface_hub.errors import HTTPError

from export import hub as target
from export.__main__ import main
from tests.refusals import refused

REPO = "someone/a-model"


@pytest.fixture
def client(monkeypatch):
    """Stands for `HfApi`: what it was asked, by method, and the error that the upload raises."""
    client = SimpleNamespace(error=None)

    def create(*repo, **how):
        client.created = *repo, how

    def upload(**asked):
        client.uploaded = asked
        if client.error:
            raise client.error
        return SimpleNamespace(commit_url=f"https://hub/{REPO}/commit/c")

    made = SimpleNamespace(create_repo=create, upload_folder=upload)
    monkeypatch.setattr(target, "HfApi", lambda: made)
    return client


def test_the_whole_folder_is_pushed_and_leftovers_are_deleted(client, make_run, tmp_path):
    output = tmp_path / "out"
    main([str(make_run()), "--output", str(output), "--push_to_hub", REPO, "--private"])
    assert client.created == (REPO, {"private": True, "exist_ok": True})
    assert client.uploaded["repo_id"] == REPO and client.uploaded["folder_path"] == output
    assert {"modules.json", "*_Dense/*", "onnx/*"} <= {*client.uploaded["delete_patterns"]}
    assert f'SentenceTransformer("{REPO}")' in (output / "README.md").read_text()


@pytest.mark.parametrize("error", [HTTPError("401 Error"), OSError("the connection was lost")])
def test_a_failed_push_is_one_line_and_leaves_the_export_whole(client, make_run, tmp_path, error):
    client.error = error
    words = [str(make_run()), "--output", str(tmp_path / "out"), "--push_to_hub", REPO]
    said = refused(main, words)
    assert f"cannot push to {REPO}: {error}; " in said and f"hf upload {REPO}" in said
    assert (tmp_path / "out" / "README.md").is_file() and client.created[-1]["private"] is None
    refused(main, [*words[:-1], "name"], match="--push_to_hub name: give OWNER/NAME")
