"""The corpora from a stand-in for the hub: small files under the published names."""

import gzip
import hashlib
import tarfile
from types import SimpleNamespace

import pytest
from huggingface_hub.errors import HTTPError

from data.prepare import ARCHIVE, STS_TEXTS, WIKI, main, pinned, prepare, write_sts_texts
from tests.data.conftest import packed
from tests.faults.forked import check_kills
from tests.refusals import refused

DOWNSTREAM = "senteval/downstream/"
GOLD = f"{DOWNSTREAM}STS/STS13-en-test/STS.gs.FNWN.txt"
NOTE = f"{DOWNSTREAM}STS/STS13-en-test/00-readme.txt"
CONTENT = {path: f"content of {path}\n".encode() for path in pinned()}
STS = {path: body for path, body in CONTENT.items() if "/STS/" in path or "/SICK/" in path}
TEXT = b"one sentence\n" * 1000


@pytest.fixture
def hub(tmp_path, monkeypatch):
    """Its files by name, and what was asked for."""
    hub = SimpleNamespace(files={ARCHIVE: packed(CONTENT), WIKI: TEXT}, asked=[], digest="")

    def download(repo, file, repo_type):
        hub.asked.append(file)
        if file not in hub.files:
            raise HTTPError("no route.")
        blob = tmp_path / (hub.digest or hashlib.sha256(hub.files[file]).hexdigest())
        blob.write_bytes(hub.files[file])
        return str(blob)

    sums = tmp_path / "SHA256SUMS"
    lines = [f"{hashlib.sha256(body).hexdigest()}  {path}\n" for path, body in CONTENT.items()]
    sums.write_text("".join(lines))
    monkeypatch.setattr("data.prepare.SUMS", sums)
    monkeypatch.setattr("data.prepare.WIKI_LINES", 1000)
    monkeypatch.setattr("data.prepare.hf_hub_download", download)
    return hub


def placed(root):
    files = [path for path in root.rglob("*") if path.is_file()]
    return {str(path.relative_to(root)): path.read_bytes() for path in files}


@pytest.mark.parametrize("prefix", ["", "downstream/", "./senteval/downstream/"])
def test_the_layout_is_filled_once_and_completed(hub, tmp_path, capsys, prefix):
    others = {f"{DOWNSTREAM}SNLI/s1.train": b"x", f"{DOWNSTREAM}STS/README": b"x", NOTE: b"terms"}
    members = CONTENT | others
    shortened = {prefix + name.removeprefix(DOWNSTREAM): body for name, body in members.items()}
    hub.files[ARCHIVE] = packed(shortened)
    root = tmp_path / "corpora"
    for _ in range(2):
        main(["sts", "wiki1m", f"--data_dir={root}"])
        assert placed(root) == STS | {NOTE: b"terms", f"text/{WIKI}": TEXT}
    assert hub.asked == [ARCHIVE, WIKI]
    shown = capsys.readouterr().out
    assert f"sts: {len(STS)} files in " in shown and "wiki1m: 1,000 lines in " in shown
    (root / GOLD).unlink()
    (root / DOWNSTREAM / "mine.txt").write_text("mine")
    prepare(["sts", "transfer"], root)
    assert placed(root).items() >= (CONTENT | {f"{DOWNSTREAM}mine.txt": b"mine"}).items()


def test_what_is_not_the_published_text_is_refused_and_nothing_is_overwritten(hub, tmp_path):
    root = tmp_path / "corpora"
    hub.files = {ARCHIVE: packed(CONTENT | {GOLD: b"9.9\n"}), WIKI: TEXT[:-14]}
    assert f"{GOLD} is missing or not the published file" in refused(prepare, ["sts"], root)
    assert "999 lines, but the published file has 1000" in refused(prepare, ["wiki1m"], root)
    hub.files, hub.digest = {WIKI: TEXT}, "0" * 64
    assert f"not the {WIKI} that the hub announced" in refused(prepare, ["wiki1m"], root)
    hub.files = {}
    said = refused(prepare, ["sts"], root)
    assert f"cannot download {ARCHIVE}" in said and "no route; run again to resume" in said
    assert "unknown name 'wiki'" in refused(prepare, ["wiki"], root)
    assert not root.exists()
    (root / GOLD).parent.mkdir(parents=True)
    (root / GOLD).write_bytes(b"9.9\n")
    assert f"{GOLD}: not the published file" in refused(prepare, ["sts"], root)
    assert placed(root) == {GOLD: b"9.9\n"}


ARCHIVES = [packed({GOLD: b""}, tarfile.SYMTYPE), gzip.compress(packed(CONTENT))[:500], b""]
ARCHIVES += [packed({f"../{GOLD}": b"x", "/etc/x": b"x", "STS/STS13-en-test/../../README": b"x"})]
ARCHIVES += [b"<html>not found</html>" * 100, gzip.compress(packed({GOLD: bytes(2**28 + 1)}), 1)]


@pytest.mark.parametrize("archive", ARCHIVES)
def test_a_hostile_or_damaged_archive_is_refused_and_writes_nothing(hub, tmp_path, archive):
    hub.files[ARCHIVE] = archive
    said = refused(prepare, ["sts"], tmp_path / "corpora")
    assert "not the expected archive" in said or "is missing or not the published file" in said
    assert not (tmp_path / "corpora").exists()


def test_a_killed_command_leaves_whole_files_and_the_same_command_ends(hub, tmp_path):
    """While it unpacks and moves."""

    def placed_whole(root):
        return {name: body for name, body in placed(root).items() if not name.endswith(".part")}

    check_kills(lambda folder: prepare(["sts"], folder), tmp_path, placed_whole, 6)


def test_the_unlabelled_text_has_every_sentence_of_every_split(tmp_path):
    root = tmp_path / DOWNSTREAM
    for folder in (*(f"STS/STS{year}-en-test" for year in range(12, 17)), "STS/STSBenchmark"):
        (root / folder).mkdir(parents=True)
        if folder.endswith("test"):
            text = f"left {folder}\tright\nunscored\tpair\textra\n"
            (root / folder / "STS.input.one.txt").write_text(text)
            (root / folder / "STS.input.one.LICENSE").write_text("terms\n")  # as in STS15
    (root / "SICK").mkdir()
    for split in ("train", "dev", "test"):
        line = f"genre\tfile\tyear\t1\t2.5\t{split}  a\t{split} b\n"
        (root / "STS" / "STSBenchmark" / f"sts-{split}.csv").write_text(line)
    for name in ("SICK_train", "SICK_trial", "SICK_test_annotated"):
        head = "pair_ID\tsentence_A\tsentence_B\trelatedness_score\n"
        (root / "SICK" / f"{name}.txt").write_text(f"{head}1\t{name} a\t{name} b\t4\n")
    write_sts_texts(tmp_path)
    lines = (tmp_path / STS_TEXTS).read_text().splitlines()
    assert lines[:4] == ["left STS/STS12-en-test", "right", "unscored", "pair"]
    assert lines[20:26] == ["train a", "train b", "dev a", "dev b", "test a", "test b"]
    assert lines[26:28] == ["SICK_train a", "SICK_train b"] and len(lines) == 32
