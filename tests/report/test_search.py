"""The search on the page, in a real browser: what it lists against numpy."""

import base64
import json
from urllib.parse import quote

import numpy as np
import pytest

from report.__main__ import main
from report.measures import pack
from tests.encoders import encode_of

LISTED = """[...document.querySelectorAll("#near > div")].map(column => [column.querySelector("h3").textContent,
    [...column.querySelectorAll("li")].map(item => [item.querySelector("span").textContent,
        Number(item.querySelector("b").textContent)])])"""
PICKED = 'document.getElementById("picked").textContent'
STATUS = 'document.getElementById("status").textContent'
MATCHES = '[...document.querySelectorAll("#matches button")].map(button => button.textContent)'


@pytest.fixture(scope="module")
def page(tmp_path_factory, trained, text_file):
    path = tmp_path_factory.mktemp("page") / "report.html"
    runs = [f"one={trained[0]}", f"two={trained[1]}"]
    main([*runs, "--sentences", str(text_file), "--data_dir", str(path.parent), "--output", str(path)])
    return path.as_uri()


@pytest.fixture(scope="module")
def expected(trained, sentences):
    """Query -> per run, ten (sentence, cosine) by numpy from the model's own vectors."""
    units = []
    for folder in trained:
        vectors = encode_of(folder)(sentences).astype(np.float64)
        units.append(vectors / np.linalg.norm(vectors, axis=1, keepdims=True))

    def near(query):
        row, found = sentences.index(query), []
        for unit in units:
            cosines = unit @ unit[row]
            order = [i for i in np.argsort(-cosines, kind="stable") if i != row][:10]
            found.append([(sentences[i], cosines[i]) for i in order])
        return found

    return near


def check(browser, expected, query):
    assert browser.run(PICKED) == query
    columns = browser.run(LISTED)
    assert [label for label, _ in columns] == ["one", "two"]
    for (_, listed), wanted in zip(columns, expected(query), strict=True):
        assert [sentence for sentence, _ in listed] == [sentence for sentence, _ in wanted]
        assert np.abs(np.array([c for _, c in listed]) - [c for _, c in wanted]).max() < 0.0007


def test_typing_finds_sentences_and_lists_the_neighbours_of_the_first(browser, page, expected, sentences):
    browser.open(page)
    check(browser, expected, sentences[0])
    browser.run('document.getElementById("query").focus()')
    browser.type("LightHouse w")
    found = [sentence for sentence in sentences if "lighthouse w" in sentence.lower()]
    assert 1 < len(found) < 50 and found[0] != sentences[0]
    assert browser.run(MATCHES) == found
    assert f"{len(found)} of 300 sentences" in browser.run(STATUS)
    check(browser, expected, found[0])


def test_a_link_leads_to_its_query(browser, page, expected, sentences):
    browser.open(f"{page}#q={quote(sentences[40])}")
    check(browser, expected, sentences[40])
    assert browser.run("location.hash") == f"#q={quote(sentences[40])}"


def test_the_page_loads_nothing_and_never_scrolls_sideways(browser, page):
    for width in (360, 800, 1280):
        browser.send("Emulation.setDeviceMetricsOverride", width=width, height=800, deviceScaleFactor=1, mobile=False)
        browser.open(page)
        assert browser.run("document.documentElement.scrollWidth") <= width
        assert browser.run("performance.getEntriesByType('resource').length") == 0
    browser.send("Emulation.clearDeviceMetricsOverride")


def test_hostile_sentences_stay_text(browser, tmp_path, trained):
    harm = "document.title='broken'"
    hostile = [f"<img src=x onerror={harm}>", f"</script><script>{harm}</script>", "plain"]
    (tmp_path / "s.txt").write_text("\n".join(hostile))
    files = ["--sentences", str(tmp_path / "s.txt"), "--data_dir", str(tmp_path)]
    browser.open(main([str(trained[0]), *files, "--output", str(tmp_path / "r.html")]).as_uri())
    assert json.loads(browser.run(f"JSON.stringify({MATCHES})")) == hostile
    assert browser.run("document.title") == "Report: first"
    assert browser.run("document.querySelectorAll('img, script').length") == 2


@pytest.mark.parametrize("count", [2, 30])
def test_rounded_vectors_have_nearly_the_same_cosines_and_the_stated_error_is_the_largest(count):
    vectors = np.random.default_rng(0).normal(size=(count, 24)).astype(np.float32) * 7
    vectors[1] = 0
    packed = pack("a", 2, vectors)
    assert (np.abs(packed.rows.astype(int)).max(axis=1) == np.where(np.arange(count) == 1, 0, 32767)).all()

    def cosines(rows):
        sizes = np.sqrt((rows.astype(float) ** 2).sum(1))
        sizes[sizes == 0] = 1
        return rows.astype(float) @ rows.T.astype(float) / np.outer(sizes, sizes)

    difference = np.abs(cosines(vectors) - cosines(packed.rows)).max()
    assert difference < 1e-4 and packed.error == pytest.approx(difference, rel=1e-5, abs=1e-12)


def test_the_page_reads_integers_of_16_bits():
    content = pack("a", 2, np.array([[0.5, -1.0], [2.0, 1.0]])).content()
    assert (content["label"], content["run"], content["dimensions"]) == ("a", 2, 2)
    rows = np.frombuffer(base64.b64decode(content["vectors"]), "<i2").reshape(2, 2)
    assert rows.tolist() == [[16384, -32767], [32767, 16384]]
