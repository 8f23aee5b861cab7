"""Nothing that is text becomes markup."""

import json

from report.markup import Markup, joined, script_json, tag


def test_text_and_attributes_are_escaped_and_markup_is_not():
    inner = tag("b", "<i>", title='"quoted" & <x>')
    assert tag("p", inner, "'", 3) == '<p><b title="&quot;quoted&quot; &amp; &lt;x&gt;">&lt;i&gt;</b>&#x27;3</p>'
    assert joined(Markup("<hr>"), "<hr>") == "<hr>&lt;hr&gt;"


def test_names_of_attributes():
    assert tag("label", for_="a", aria_hidden="true", class_=None, viewBox="0 0 1 1") == (
        '<label for="a" aria-hidden="true" viewBox="0 0 1 1"></label>'
    )
    assert tag("input", type="search") == '<input type="search">'


def test_json_in_a_script_cannot_end_it_and_is_still_the_same_json():
    value = {"</script><script>": ["<!--", "&amp;", "]]>", "\u2028é"]}
    text = script_json(value)
    assert not set("<>&\u2028") & set(text)
    assert json.loads(text) == value
