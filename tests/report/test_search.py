"""The search on the page, in a real browser: what it lists against numpy."""

import json
from urllib.parse import quote

import numpy as np
import pytest

from report.__main__ import main
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


def test_a_picked_match_and_a_picked_neighbour_become_the_query(browser, page, expected, sentences):
    browser.open(page)
    browser.run('document.querySelectorAll("#matches button")[7].click()')
    check(browser, expected, sentences[7])
    browser.run('document.querySelectorAll("#near > div")[1].querySelectorAll("button")[3].click()')
    check(browser, expected, expected(sentences[7])[1][3][0])


def test_a_link_leads_to_its_query(browser, page, expected, sentences):
    browser.open(f"{page}#q={quote(sentences[40])}")
    check(browser, expected, sentences[40])
    assert browser.run("location.hash") == f"#q={quote(sentences[40])}"


def test_a_text_that_is_not_there_is_not_embedded_and_that_is_said(browser, page):
    browser.open(f"{page}#q=%3Cimg%20src=x%3E%20zebra")
    assert browser.run(LISTED) == [] and browser.run(MATCHES) == []
    assert "cannot embed new text" in browser.run(STATUS)
    browser.open(f"{page}#q=%")
    assert len(browser.run(LISTED)) == 2, "an address that is no address is passed over"


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
