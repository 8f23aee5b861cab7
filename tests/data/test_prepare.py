from __future__ import annotations

import hashlib
import json
import logging
import os
import re
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from common.errors import BadInput
from data.prepare import LOCK, SETS, SUMS, WIKI, main, path_of, pinned
from tests.faults.forked import check_kills

DOWNSTREAM = "senteval/downstream/"
EXTRA = {
    "SNLI/s1.train": b"not wanted",
    "STS/STSBenchmark-fix/sts-test.csv": b"not wanted",
    "STS/STS13-en-test/correlation.pl": b"not wanted",
    "STS/STS13-en-test/00-readme.txt": b"terms",
}


def _sha256(body):
    return hashlib.sha256(body).hexdigest()


@pytest.mark.parametrize("prefix", ["", "./", "downstream/", "senteval/", "./senteval/downstream/"])
def test_fills_the_layout(hub, corpora, caplog, prefix):
    caplog.set_level(logging.INFO)
    corpora.serve(EXTRA, prefix)
    rows = corpora.prepare("sts", "wiki1m")
    note = DOWNSTREAM + "STS/STS13-en-test/00-readme.txt"
    expected = {path: corpora.content[path] for path in corpora.sts} | {note: b"terms", WIKI.target: corpora.text}
    assert corpora.placed() == expected
    assert not (corpora.root / ".download").exists()
    ignored = len(corpora.content) - len(corpora.sts) + 3
    assert f"{len(corpora.sts) + 1} files to {corpora.root / DOWNSTREAM}, ignored {ignored}" in caplog.text
    digests = {name: _sha256(body) for name, body in hub.files.items()}
    lock = json.loads((corpora.root / LOCK).read_text())
    assert {name: entry["sha256"] for name, entry in lock.items()} == digests
    assert {entry["commit"] for entry in lock.values()} == {hub.commit}
    assert f"not pinned by a published source; recorded sha256 {digests[WIKI.file]}" in caplog.text
    size = sum(len(corpora.content[path]) for path in corpora.sts if "STS13" in path)
    assert rows[1][:5] == ("STS13", 6, 6, size, "pinned")
    assert rows[-1][:5] == ("wiki1m", 1, 1_000_000, len(corpora.text), "recorded")


def test_one_download_serves_both_evaluation_parts(hub, corpora):
    corpora.prepare("transfer", "sts")
    assert {path for path in corpora.placed() if not path.endswith("readme.txt")} == set(corpora.content)
    assert hub.count("GET") == 1


def test_an_interrupted_download_of_another_part_stays(hub, corpora):
    other = corpora.root / ".download" / "wiki" / "part.incomplete"
    other.parent.mkdir(parents=True)
    other.write_bytes(b"half")
    corpora.prepare("sts")
    assert [path for path in (corpora.root / ".download").rglob("*") if path.is_file()] == [other]


def test_a_second_run_asks_for_nothing(hub, corpora, caplog):
    caplog.set_level(logging.INFO)
    corpora.prepare("sts", "wiki1m")
    before, asked, lock = corpora.placed(), len(hub.requests), (corpora.root / LOCK).read_text()
    corpora.prepare("sts", "wiki1m")
    assert (corpora.root / LOCK).read_text() == lock
    assert (len(hub.requests), corpora.placed()) == (asked, before)
    assert asked >= 2
    assert "sts: already present, verified" in caplog.text
    assert "wiki1m: already present, as recorded in" in caplog.text


def test_a_part_with_a_file_missing_is_completed_beside_the_others(hub, corpora):
    corpora.prepare("sts")
    (corpora.root / corpora.gold).unlink()
    (corpora.root / DOWNSTREAM / "STS/mine.txt").write_text("mine")
    corpora.prepare("sts")
    placed = corpora.placed()
    assert placed[corpora.gold] == corpora.content[corpora.gold]
    assert placed[DOWNSTREAM + "STS/mine.txt"] == b"mine"
    assert hub.count("GET") == 2


def test_an_extracted_file_with_another_digest_is_refused(hub, corpora):
    corpora.serve({corpora.gold: b"9.9\n"})
    with pytest.raises(BadInput) as caught:
        corpora.prepare("sts")
    for part in (corpora.gold, corpora.pinned[corpora.gold], _sha256(b"9.9\n")):
        assert part in str(caught.value)
    assert corpora.placed() == {}
    assert not (corpora.root / LOCK).exists()
    corpora.serve({})
    corpora.prepare("sts")
    assert set(corpora.placed()) == corpora.sts


def test_an_archive_that_lacks_a_file_is_refused(hub, corpora):
    corpora.serve({corpora.gold: None})
    with pytest.raises(BadInput, match=re.escape(f"1 files of STS13 missing: {corpora.gold}")):
        corpora.prepare("sts")
    assert corpora.placed() == {}


def test_a_file_in_place_with_another_digest_is_not_overwritten(hub, corpora):
    corpora.prepare("sts")
    (corpora.root / corpora.gold).write_bytes(b"9.9\n")
    asked = len(hub.requests)
    with pytest.raises(BadInput, match=re.escape(corpora.gold) + ".*remove it"):
        corpora.prepare("sts")
    assert (corpora.root / corpora.gold).read_bytes() == b"9.9\n"
    assert len(hub.requests) == asked


def test_files_placed_by_hand_are_verified_and_used(hub, corpora):
    for path in corpora.sts:
        (corpora.root / path).parent.mkdir(parents=True, exist_ok=True)
        (corpora.root / path).write_bytes(corpora.content[path])
    (corpora.root / WIKI.target).parent.mkdir()
    (corpora.root / WIKI.target).write_bytes(corpora.text)
    corpora.prepare("sts", "wiki1m")
    assert hub.requests == []
    assert json.loads((corpora.root / LOCK).read_text())[WIKI.file]["commit"] is None


@pytest.mark.parametrize("removed", [13, 14])
def test_too_few_rows_are_refused_and_not_recorded(hub, corpora, removed):
    """One row less, with and without a line end at the end of the file."""
    hub.files[WIKI.file] = corpora.text[:-removed]
    with pytest.raises(BadInput, match="999999 lines, but the published file has 1000000"):
        corpora.prepare("wiki1m")
    assert corpora.placed() == {}
    hub.files[WIKI.file] = corpora.text[:-1]
    assert corpora.prepare("wiki1m")[0][2] == 1_000_000


def test_the_shipped_digests_cover_what_the_evaluations_read():
    def both(task, *names):
        return {f"STS/{task}-en-test/STS.{kind}.{name}.txt" for name in names for kind in ("gs", "input")}

    needed = {f"STS/STSBenchmark/sts-{split}.csv" for split in ("train", "dev", "test")}
    needed |= {f"SICK/SICK_{split}.txt" for split in ("train", "trial", "test_annotated")}
    needed |= both("STS12", "MSRpar", "MSRvid", "SMTeuroparl", "surprise.OnWN", "surprise.SMTnews")
    needed |= both("STS13", "FNWN", "headlines", "OnWN")
    needed |= both("STS14", "deft-forum", "deft-news", "headlines", "images", "OnWN", "tweet-news")
    needed |= both("STS15", "answers-forums", "answers-students", "belief", "headlines", "images")
    needed |= both("STS16", "answer-answer", "headlines", "plagiarism", "postediting", "question-question")
    assert {path for path in pinned() if "/STS/" in path or "/SICK/" in path} == {DOWNSTREAM + path for path in needed}
    lines = SUMS.read_text().splitlines()
    assert all(re.fullmatch(r"[0-9a-f]{64}  senteval/downstream/[\w./-]+", line) for line in lines)
    assert len(pinned()) == len(lines) == sum(len(some.files()) for some in SETS)
    assert all(some.files() for some in SETS)


def test_names_that_only_resemble_a_wanted_file_are_ignored():
    name = "STS/STS13-en-test/STS.gs.FNWN.txt"
    wanted = {DOWNSTREAM + name}
    assert path_of(name, wanted) == DOWNSTREAM + name
    for other in ("STS.gs.FNWN.txt", "other/" + name, name + "/x", "STS/STS14-en-test/README", "downstream"):
        assert path_of(other, wanted) is None


def test_unknown_names_and_unwritable_folders(corpora, tmp_path):
    with pytest.raises(BadInput, match=r"unknown name 'wiki'.*sts, transfer, sts_texts, sts17, sts22, wiki1m"):
        main(["wiki"])
    (tmp_path / "file").write_text("")
    with pytest.raises(BadInput, match=r"cannot download .*file"):
        main(["sts", "--data_dir", str(tmp_path / "file")])
    corpora.root.mkdir()
    (corpora.root / "text").write_text("a file where a folder belongs")
    with pytest.raises(BadInput, match="cannot fill"):
        main(["wiki1m", "--data_dir", str(corpora.root)])


def test_the_command_ends_with_one_line_and_code_2(hub, corpora):
    """The generated files are not the published ones, so the shipped digests refuse them."""
    command = [sys.executable, "-m", "data.prepare", "sts", "--data_dir", str(corpora.root)]
    where = Path(__file__).parents[2]
    run = subprocess.run(command, cwd=where, env=os.environ, capture_output=True, text=True, timeout=60)
    assert (run.returncode, run.stdout) == (2, "")
    errors = [line for line in run.stderr.splitlines() if line.startswith("error:")]
    assert len(errors) == 1
    assert "SHA256SUMS" in errors[0]
    assert "Traceback" not in run.stderr
    assert corpora.placed() == {}


def test_the_command_prints_a_table_and_help_teaches(corpora, capsys):
    main(["wiki1m", "--data_dir", str(corpora.root)])
    header, row = capsys.readouterr().out.splitlines()
    assert header.split() == "set files lines bytes digest terms of use".split()
    assert row.split()[:5] == ["wiki1m", "1", "1,000,000", f"{len(corpora.text):,}", "recorded"]
    with pytest.raises(SystemExit) as caught:
        main(["--help"])
    told = capsys.readouterr().out
    assert caught.value.code == 0
    for text in ("sts", "transfer", "wiki1m", "110 MB", "CC BY-NC-SA 3.0", "text/wiki1m_for_simcse.txt", LOCK):
        assert text in told


@pytest.mark.parametrize("part", ["sts", pytest.param("wiki1m", marks=pytest.mark.slow)])
def test_a_killed_command_leaves_whole_files_and_the_same_command_ends(corpora, part):
    """While it downloads, unpacks and moves."""

    def at(folder):
        return replace(corpora, root=folder)

    check_kills(lambda folder: at(folder).prepare(part), corpora.root.parent, lambda folder: at(folder).placed(), 6)
