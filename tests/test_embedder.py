"""Search among texts gives what a slow loop over cosines gives."""

from itertools import pairwise

import numpy as np
import pandas
import pytest

from common.errors import BadInput
from embedder import Embedder
from search.index import Document
from tests.encoders import encode_of
from tests.refusals import refused


@pytest.fixture(scope="module")
def model(tiny_bert):
    return Embedder(tiny_bert, pooling="avg")


def test_the_nearest_texts_are_those_of_the_highest_cosine(model, sentences):
    texts, queries = sentences[:50], sentences[50:53]
    results = model.build_index(texts).search(np.array(queries), top_k=np.int64(4))
    for query, hits in zip(queries, results, strict=True):
        cosines = {text: model.similarity(query, text).item() for text in texts}
        expected = sorted(texts, key=cosines.get, reverse=True)[:4]
        assert [text for text, _ in hits] == expected
        scores = [cosines[text] for text in expected]
        assert [score for _, score in hits] == pytest.approx(scores, abs=1e-5)
    least = np.float32(results[0][0][1])
    [(text, score), *rest] = model.search(texts[7], top_k=99, threshold=least)
    assert text == texts[7] and score == pytest.approx(1) and len(rest) < 49
    assert {hit.bm25 for hit in model.hits(queries)[0]} == {None}
    assert "has no BM25" in refused(model.search, "a query", weight=0)


def test_vectors_are_those_of_the_one_encode_loop(model, tiny_bert, sentences):
    expected = encode_of(tiny_bert, "avg")(sentences[:5])
    assert np.array_equal(model.encode(sentences[:5]), expected)
    assert np.allclose(model.encode(sentences[0]), expected[0], atol=1e-5)
    assert model.similarity(sentences[:2], sentences[:3]).shape == (2, 3)


def test_what_cannot_be_searched_is_said(tiny_bert):
    model = Embedder(tiny_bert, pooling="avg")
    for call in (model.search, model.save):
        assert "no index yet" in refused(call, "index")
    model.build_index(["a", "b"])
    for texts in ([], ["a", None], {"d1": "a"}, pandas.DataFrame({"text": ["a"]}), "hello"):
        refused(model.build_index, texts, match=r"one or more strings|give a list of strings")
    assert {text for text, _ in model.search("a")} == {"a", "b"}, "the old index"


def test_documents_are_added_and_removed_also_after_loading(tiny_bert, sentences, tmp_path):
    model = Embedder(tiny_bert, pooling="avg").build_index(sentences[:4], lexical=True)
    model.save(tmp_path / "index", "float32")
    loaded = Embedder.load_index(tmp_path / "index")
    loaded.remove("1").remove(np.int64(0)).add(sentences[4:6]).add(["a page"], ids=["pages/a"])
    assert [one.id for one in loaded.index.all_documents()] == ["2", "3", "4", "5", "pages/a"]
    assert loaded.texts == [*sentences[2:6], "a page"]
    expected = model.build_index([*sentences[2:6], "a page"], lexical=True)
    for mine, theirs in zip(loaded.hits(["a page"], 5), expected.hits(["a page"], 5), strict=True):
        assert [hit.document for hit in mine] == [hit.document for hit in theirs]
        assert [hit.bm25 for hit in mine] == [hit.bm25 for hit in theirs]
    loaded.save(tmp_path / "index")
    again = Embedder.load_index(tmp_path / "index")
    assert again.texts == loaded.texts and again.index.facts["dtype"] == "float32"
    expected.save(tmp_path / "other", "float32")
    expected.add(["more"]).save(tmp_path / "other")
    assert Embedder.load_index(tmp_path / "other").index.facts["dtype"] == "float32"
    assert again.remove("pages/a").texts == sentences[2:6]
    for wrong, said in {"pages/a": "'pages/a': the index", 4: "4: the index"}.items():
        assert said in refused(again.remove, wrong)
    assert "cannot be empty" in refused(again.remove, range(4))
    assert "id '2': a document has it already" in refused(again.add, ["b"], ids=["2"])
    assert "1 ids for 2 texts" in refused(again.add, ["b", "c"], ids=["x"])
    assert again.texts == sentences[2:6]


def test_what_another_program_has_saved_meanwhile_is_not_overwritten(tiny_bert, tmp_path):
    Embedder(tiny_bert, pooling="avg").build_index(["a dog"]).save(tmp_path / "index")
    mine, other = (Embedder.load_index(tmp_path / "index") for _ in range(2))
    for text in ("a cat", "a mouse"):
        other.add([text]).save(tmp_path / "index")
    said = refused(mine.add(["a bird"]).save, tmp_path / "index")
    assert "another program has changed it" in said
    assert Embedder.load_index(tmp_path / "index").texts == other.texts


def test_documents_are_added_in_the_windows_of_the_index(tiny_bert, tmp_path):
    model = Embedder(tiny_bert, pooling="avg")
    long = " ".join(map(str, range(100, 130)))
    model.index_documents([Document("a", "", long)], None, window=20, stride=10)
    model.save(tmp_path / "index")
    loaded = Embedder.load_index(tmp_path / "index").add([long + " 9"], ids=["b"])
    assert loaded.index.windows[:, :2].tolist() == [[0, 0], [0, 40], [1, 0], [1, 40], [1, 44]]


def test_windows_leave_room_for_the_prompt_and_overlap(tiny_bert):
    prompt, text = "a long prompt of ten tokens", " ".join(map(str, range(100, 200)))
    model = Embedder(tiny_bert, "avg", max_length=30, document_prompt=prompt)
    model.index_documents([Document("a", "", text)], None, window=200, stride=100)
    bounds = model.index.windows[:, 1:].tolist()
    cuts = [prompt, *(text[start:end] for start, end in bounds)]
    before, *lengths = map(len, model.tokenizer(cuts, add_special_tokens=False)["input_ids"])
    assert len(bounds) > 5 and max(lengths) <= 28 - before + 2
    assert all(after < end for (_, end), (after, _) in pairwise(bounds))
    model.encoder.module.prompts["document"] = "word " * 40
    said = refused(model.index_documents, [Document("a", "", text)], None)
    assert "its document prompt leaves no room" in said


def test_only_the_index_is_in_bfloat16_by_itself(tiny_bert, monkeypatch, tmp_path):
    exact = Embedder(tiny_bert, pooling="avg").build_index(["a dog"])
    monkeypatch.setattr("torch.cpu.get_capabilities", lambda: {"avx512_bf16": True})
    model = Embedder(tiny_bert, pooling="avg").build_index(["a dog"])
    assert (model.encode(["a dog"]) == exact.encode(["a dog"])).all()
    assert 0 < np.abs(model.vectors - exact.vectors).max() < 0.05
    assert model.hits(["a dog"])[0][0].cosine == pytest.approx(1, abs=1e-6)
    model.save(tmp_path / "index")
    monkeypatch.setattr("torch.cpu.get_capabilities", dict)
    loaded = Embedder.load_index(tmp_path / "index")
    assert loaded.index.facts["bf16"] and loaded.hits(["a dog"])[0][0].cosine > 1 - 1e-3
    monkeypatch.setattr("eval.encode.Encode.__call__", lambda *_: pytest.fail("was encoded"))
    assert loaded.build_index(["a dog"]).texts == ["a dog"], "in bfloat16, as it was built"
    monkeypatch.undo()
    asked = Embedder(tiny_bert, pooling="avg", bf16=True)
    assert (asked.encode(["a dog"]) != exact.encode(["a dog"])).any()


WRONG = [("search", {"top_k": value}) for value in (2.0, -1, True)]
WRONG += [("search", {"weight": "0.5"}), ("search", {"weight": 2}), ("search", {"threshold": "0"})]
WRONG += [("search", {"queries": 3}), ("hits", {"top_k": 0}), ("build_index", {"texts": None})]
WRONG += [("build_index", {"language": "klingon", "lexical": True})]
WRONG += [("build_index", {"lexical": "yes"}), ("encode", {"role": "passage"})]
WRONG += [("encode", {"texts": 1.5}), ("save", {"dtype": "float8"}), ("save", {"folder": None})]
WRONG += [("", {"model": 3}), ("", {"pooling": 1}), ("", {"max_length": "24"})]
WRONG += [("", {"device": 0}), ("", {"bf16": "no"})]


@pytest.mark.parametrize(("name", "wrong"), WRONG, ids=str)
def test_a_value_of_a_wrong_type_or_range_is_refused(model, tiny_bert, tmp_path, name, wrong):
    model.build_index(["a dog", "a river"], lexical=True)
    texts = {"search": "queries", "hits": "queries"}.get(name, "texts")
    right = {"": {"model": tiny_bert}, "save": {"folder": tmp_path / "index"}}
    call = getattr(model, name) if name else Embedder
    with pytest.raises(BadInput, match=f"^{next(iter(wrong))} .*: must be "):
        call(**right.get(name, {texts: ["a"]}) | wrong)
