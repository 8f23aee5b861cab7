"""An index ranks as a slow loop does, and a folder gives back what was saved or an error."""

import json
import shutil
import signal

import numpy as np
import pytest

import search.index
from common.folders import filling
from embedder import Embedder
from eval.metrics.cosine import unit
from eval.retrieval.hybrid import fused
from eval.retrieval.lexical import Lexical
from models.folder import Unreachable
from search.export import export
from search.index import Document, Index
from search.recipe import Recipe
from tests.eval.toys import letters
from tests.faults.forked import run
from tests.folders import change_json
from tests.refusals import refused


@pytest.fixture
def model(tiny_bert, sentences):
    return Embedder(tiny_bert, pooling="avg").build_index(sentences[:60], lexical=True)


def test_both_scores_are_added_and_the_best_window_stands_for_its_document(monkeypatch):
    monkeypatch.setattr(search.index, "SCORES", 20)  # one query at a time
    monkeypatch.setattr(search.index, "BLOCK", 3)
    texts = ["bad cab fed a dad", "", "dad dad dad cab", "hag bag", "egg bed face"]
    documents = [Document(f"d{i}", "", text) for i, text in enumerate(texts)]

    def cut(text):
        return [(start, min(start + 6, len(text))) for start in range(0, max(1, len(text)), 4)]

    seen = []

    def encode(texts):
        seen.extend(texts)
        return letters(texts)

    index = Index.build(encode, documents, cut)
    windows = [(i, *window) for i, text in enumerate(texts) for window in cut(text)]
    parts = [texts[i][start:end] for i, start, end in windows]
    assert sorted(seen) == sorted({*parts}) and len(seen) < len(parts), "each once"
    lexical, queries = Lexical.of(parts), ["dad", "cab bed", "", "unheardof"]
    for weight in (0.0, 0.7, 1.0):
        found = index.search(letters(queries), queries, 9, weight)
        for query, hits in zip(queries, found, strict=True):
            cosines = (unit(letters(parts)) @ unit(letters([query]))[0]).astype(np.float32)
            words = lexical.scores(query)
            best = {}
            for window, score in zip(windows, fused(cosines, words, weight), strict=True):
                if window[0] not in best or score > best[window[0]][0] + 1e-6:
                    best[window[0]] = (score, window)
            if weight == 0 and words.any():  # BM25 alone finds only what has one of the words
                best = {number: found for number, found in best.items() if found[0] > 0}
            assert sorted(hit.document for hit in hits) == sorted(best)
            expected = sorted((score for score, _ in best.values()), reverse=True)
            assert [hit.score for hit in hits] == pytest.approx(expected, abs=1e-4)
            for hit in hits:
                assert best[hit.document][1] == hit[:3]
                assert hit.cosine == pytest.approx(cosines[windows.index(hit[:3])], abs=1e-5)
                assert hit.bm25 == words[windows.index(hit[:3])]
    assert "weight 1.1 must be from 0" in refused(index.search, letters(["a"]), ["a"], 1, 1.1)


@pytest.mark.parametrize(("dtype", "error"), [("float32", 1e-6), ("float16", 1e-3)])
def test_what_was_saved_comes_back(model, sentences, tmp_path, dtype, error):
    queries = sentences[60:64]
    before = model.hits(queries, top_k=60)
    model.save(tmp_path / "index", dtype)
    loaded = Embedder.load_index(tmp_path / "index")
    assert loaded.texts == sentences[:60] and isinstance(loaded.index.vectors, np.memmap)
    assert loaded.index.vectors.dtype == dtype
    for old, new in zip(before, loaded.hits(queries, top_k=60), strict=True):
        cosines = [{hit.document: hit.cosine for hit in hits} for hits in (old, new)]
        assert cosines[1] == pytest.approx(cosines[0], abs=error)
        assert {hit[0]: hit.bm25 for hit in old} == {hit[0]: hit.bm25 for hit in new}
    assert loaded.vectors == pytest.approx(model.vectors, abs=error)
    suffixes = {path.suffix for path in (tmp_path / "index").rglob("*")}
    assert not suffixes & {".pkl", ".pickle", ".bin"}


def test_files_that_people_put_into_an_index_outlive_its_replacement(model, tmp_path):
    model.save(tmp_path / "index")
    mine = [tmp_path / "index" / name for name in ("README.md", "notes/todo.txt")]
    for path in mine:
        path.parent.mkdir(exist_ok=True)
        path.write_text("mine")
    for _ in range(2):
        model.save(tmp_path / "index")
    assert [path.read_text() for path in mine] == ["mine", "mine"]
    assert Index.load(tmp_path / "index", verify=True).documents == model.index.documents


def test_the_model_of_an_index_that_has_moved_is_asked_for(model, tmp_path):
    model.encoder.module.save(str(tmp_path / "model"), model.tokenizer)
    Recipe(0.2).write(tmp_path / "model")
    Embedder(tmp_path / "model").build_index(["a text"]).save(tmp_path / "index")
    moved = (tmp_path / "model").rename(tmp_path / "moved")
    assert "give its --model" in refused(Embedder.load_index, tmp_path / "index")
    index = Embedder.load_index(tmp_path / "index", moved).index
    assert "give its --model" in refused(export, index, tmp_path / "out")
    export(index, tmp_path / "out", str(moved))
    assert json.loads((tmp_path / "out" / "search.json").read_text())["weight"] == 0.2


def test_only_documents_below_a_path_are_found():
    names = ["a/b.md", "a/c/d.md", "ab.md", "a"]
    index = Index.build(letters, [Document(name, "", "a cat") for name in names])
    everything = [0, 1, 2, 3]
    cases = {"a": [0, 1, 3], "./a/c/": [1], "ab.md": [2], None: everything, "./": everything}
    for under, found in cases.items():
        [hits] = index.search(letters(["cat"]), ["cat"], 9, under=under)
        assert [hit.document for hit in hits] == found
    said = refused(index.search, letters(["cat"]), ["cat"], 9, under="b")
    assert "'b': the index has no document below it" in said


def test_another_model_other_prompts_and_another_folder_are_refused(model, tiny_roberta, tmp_path):
    model.save(tmp_path / "index")
    for other in ({"model": tiny_roberta}, {"pooling": "cls_before_pooler"}):
        said = refused(Embedder.load_index, tmp_path / "index", **other)
        assert "is not the model that built the index" in said
    another = Embedder(tiny_roberta, pooling="avg").build_index(["a text"])
    assert "exists already; remove it" in refused(another.save, tmp_path / "index")
    assert Embedder.load_index(tmp_path / "index", pooling="avg").texts
    folder = tmp_path / "model"
    model.encoder.module.save(str(folder), model.tokenizer)
    Embedder(folder).build_index(["a text"]).save(tmp_path / "other")
    prompts = {"prompts": {"query": "query: "}}
    change_json(folder / "config_sentence_transformers.json", **prompts)
    change_json(folder / "config.json", sentence_embedding=...)
    assert "or has other prompts" in refused(Embedder.load_index, tmp_path / "other")


def test_of_large_files_only_numbers_that_are_not_finite_are_refused(model, tmp_path, monkeypatch):
    monkeypatch.setattr(search.index, "SMALL", 0)
    model.save(tmp_path / "index")
    vectors = np.load(tmp_path / "index" / "vectors.npy")
    for value in (0.5, np.nan):
        vectors[3, 3] = value
        np.save(tmp_path / "index" / "vectors.npy", vectors)
        said = refused(Index.load, tmp_path / "index", verify=True)
        assert "vectors.npy has changed since it was written" in said
        loaded = Embedder.load_index(tmp_path / "index")
        if value == 0.5:
            assert len(loaded.search("a query")) == 5
    assert "not finite" in refused(loaded.search, "a query")
    (tmp_path / "index" / "windows.npy").write_bytes(b"x")
    assert "windows.npy has changed" in refused(Index.load, tmp_path / "index")


def test_other_folders_and_formats_are_refused(model, tmp_path, monkeypatch):
    with filling(tmp_path / "model"):
        pass
    assert "model: no index, which" in refused(Index.load, tmp_path / "model")
    with monkeypatch.context() as patch:
        patch.setattr(search.index, "FORMAT", 5)
        model.save(tmp_path / "new")
    assert "an index of format 5, this version reads 4" in refused(Index.load, tmp_path / "new")
    model.index.save(tmp_path / "old", {}, "int8")
    assert "vectors.npy: vectors in int8 are of another" in refused(Index.load, tmp_path / "old")


def test_an_index_replaced_while_it_is_opened_is_whole(model, sentences, tmp_path, monkeypatch):
    folder, facts_of = tmp_path / "index", search.index.facts_of
    model.save(folder)

    def late(*given):
        facts = facts_of(*given)
        monkeypatch.setattr(search.index, "facts_of", facts_of)
        model.build_index(sentences[60:70], lexical=True).save(folder)
        return facts

    monkeypatch.setattr(search.index, "facts_of", late)
    assert Embedder.load_index(folder).texts == sentences[60:70]
    folder.rename(tmp_path / ".index.replaced")  # by a writer that is at its last step
    assert Embedder.load_index(folder).texts == sentences[60:70]


def test_a_killed_update_leaves_the_old_index_or_the_new_one(model, sentences, tmp_path):
    model.save(tmp_path / "old" / "index")
    model.build_index(sentences[:20], lexical=True)

    def update(name, **fault):
        folder = tmp_path / name
        if not folder.exists():
            shutil.copytree(tmp_path / "old", folder)
        code, events = run(lambda folder: model.save(folder / "index"), folder, fault)
        return code, events, len(Index.load(folder / "index").documents)

    _, events, texts = update("whole")
    assert texts == 20
    for at in (*range(1, events - 5, events // 4), *range(events - 5, events + 1)):
        code, _, texts = update(f"at-{at}", kill=at)
        assert code == -signal.SIGKILL and texts in (60, 20), at
        assert update(f"at-{at}")[::2] == (0, 20)
        assert [path.name for path in (tmp_path / f"at-{at}").iterdir()] == ["index"]


def test_the_recipe_of_a_model_on_the_hub_is_its_own(tmp_path, monkeypatch, caplog):
    Recipe(0.5, "german").write(tmp_path)
    monkeypatch.setattr("models.folder.fetch", lambda model, name: tmp_path / name)
    assert Recipe.of("owner/model") == (0.5, "german")

    def unreachable(model, name):
        raise Unreachable(f"'{model}': cannot check for {name} without the hub")

    monkeypatch.setattr("models.folder.fetch", unreachable)
    caplog.set_level("INFO")
    assert Recipe.of("owner/model") is None and "cannot check for search.json" in caplog.text


@pytest.mark.parametrize("changed", [{"weight": 1.5}, {"weight": "0.7"}, {"language": "klingon"}])
def test_a_damaged_recipe_is_refused(tmp_path, changed):
    Recipe(0.5, "german").write(tmp_path)
    assert Recipe.of(tmp_path) == (0.5, "german")
    change_json(tmp_path / "search.json", **changed)
    assert "search.json" in refused(Recipe.of, tmp_path)
