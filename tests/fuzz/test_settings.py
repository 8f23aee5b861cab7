"""YAML: configurations, published numbers, tables."""

import copy
import functools
import json
import string

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from common.command_line import config_flags, read_config
from common.errors import BadInput
from eval.compare import published
from eval.compare.sides import Side
from tables import specification
from tests.fuzz.damage import MANY, altered, damaged, result

_CONFIG = b"method: simcse\nlearning_rate: 3e-5\ntrain_file: [a.txt, b.txt]\n# no: 1\nseed: 010\nrun_name: 'x: y'\n"
_KNOWN = {"method": "str", "learning_rate": "float", "train_file": "list[str]", "seed": "int", "run_name": "str"}
_SCRAPS = [
    b"!!python/object/apply:os.system [x]",
    b"!!map ",
    b"!!set ",
    b"!!int ",
    b"!!float ",
    b"!!timestamp ",
    b"!!omap ",
]
_SCRAPS += [
    b"!!binary ",
    b"&a ",
    b"*a",
    b"<<: ",
    b"? ",
    b"- ",
    b": ",
    b"{" * 3000,
    b"- " * 3000,
    b"---\n",
    b"|\n",
    b"~",
]
_SCRAPS += [b"0b_", b"0x_", b"2001-99-99", b"1:99", b"%YAML 9.9\n", b"[1, 2]: 3\n", b".inf", b"%TAG ! x\n", b"!!bool "]


@MANY
@given(damaged(_CONFIG, _SCRAPS))
def test_a_configuration_is_words_or_refused(tmp_path, content):
    path = tmp_path / "config.yaml"
    path.write_bytes(content)
    found = result(read_config, str(path))
    flags = result(config_flags, str(path), _KNOWN)
    if found is None or not found.keys() <= _KNOWN.keys():
        assert flags is None
        return
    for value in found.values():
        assert all(type(part) is str and part for part in (value if isinstance(value, list) else [value]))
    assert flags is None or sum(flag.startswith("--") for flag in flags) == len(found)


_WORD = st.text(string.ascii_letters + string.digits + " .:#-'\"~!&*[]{}<>%@,\u00e9", min_size=1, max_size=9)


@MANY
@given(st.dictionaries(_WORD, _WORD | st.lists(_WORD, min_size=1, max_size=3), min_size=1, max_size=4))
def test_a_configuration_that_was_written_is_read(tmp_path, content):
    path = tmp_path / "config.yaml"
    path.write_text(yaml.safe_dump(content), encoding="utf-8")
    assert read_config(str(path)) == content


_PUBLISHED = {
    "average_of": {"spearman": ["STS12", "STS13"]},
    "sources": {"S": "a paper, table 1"},
    "records": [
        {"id": "one", "backbone": "bert-base", "scores": [{"source": "S", "values": {"STS12": 70.5, "Avg.": 71}}]},
        {"id": "two", "backbone": "bert-base", "runs": 5, "spread": "one", "note": "n",
         "scores": [{"source": "S", "n": 9, "metric": "spearman", "split": "dev",
                     "values": {"STS-B": {"mean": 1.0, "std": 0.5, "min": 0, "max": 2}}}]},
    ],
}  # fmt: skip
_TABLE = {
    "title": "t", "paper": "p", "place": "Table 1", "backbone": "bert-base", "note": "n",
    "columns": [{"tasks": ["STS12"], "x": 1},
                {"tasks": ["STS-B"], "split": "dev", "statistic": "max", "name": "d", "x": 2}],
    "rows": [{"label": "a", "config": "simcse", "overrides": {"seed": 1, "bf16": True}, "published": ""},
             {"label": 2, "evaluate": "avg", "misprints": {"d": 1.5}, "x": 1, "y": 2, "series": "s"},
             {"label": "c", "published_only": "no code"}],
    "figure": {"kind": "curve", "x": "steps", "y": "score", "log": True},
}  # fmt: skip


def _yaml(valid):
    def written(content):
        return yaml.safe_dump(json.loads(json.dumps(content))).encode(errors="replace")

    return altered(valid).map(written) | damaged(yaml.safe_dump(valid).encode(), _SCRAPS)


@functools.cache
def _table():
    """A valid table whose published record exists."""
    table = copy.deepcopy(_TABLE)
    table["rows"][0]["published"] = next(
        name for name, side in published.records().items() if any(key.task == "STS12" for key in side.scores)
    )
    return table


@MANY
@given(_yaml(_PUBLISHED))
def test_published_numbers_are_read_or_refused(tmp_path, content):
    path = tmp_path / "published.yaml"
    path.write_bytes(content)
    for side in (result(published.load, path) or {}).values():
        assert isinstance(side, Side)
        for key, score in side.scores.items():
            assert all(isinstance(part, str) for part in (*key, score.source))
            assert abs(score.mean) < float("inf") and score.runs >= 1


@MANY
@given(st.data())
def test_tables_are_read_or_refused(tmp_path, data):
    (tmp_path / "paper-1.yaml").write_bytes(data.draw(_yaml(_table())))
    table = result(specification.read, "paper-1", tmp_path)
    if table is not None:
        assert table.rows and all(isinstance(row.label, str) for row in table.rows)
        assert all(isinstance(value, str) for row in table.rows for value in row.overrides.values())
        assert all(isinstance(word, str) for column in table.columns for word in (column.name, *column.key))


def test_the_valid_ones_are_read(tmp_path):
    (tmp_path / "paper-1.yaml").write_text(yaml.safe_dump(_table()))
    assert len(specification.read("paper-1", tmp_path).rows) == 3
    (tmp_path / "published.yaml").write_text(yaml.safe_dump(_PUBLISHED))
    assert set(published.load(tmp_path / "published.yaml")) == {"one", "two"}


@pytest.mark.parametrize("text", ["!!map [a]", "!!set x", "a: !!int ''", "a: 0b_", "{" * 5000, "a: !!bool x", "<<: 1"])
def test_yaml_that_breaks_the_library_is_refused(tmp_path, text):
    (tmp_path / "x.yaml").write_text(text)
    with pytest.raises(BadInput, match="not a YAML file"):
        published.read_yaml(tmp_path / "x.yaml")


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"average_of": {"spearman": 1}}, "average_of: 'spearman' is int; list is needed"),
        ({"average_of": {1: []}}, "average_of: the key '1' is no word"),
        ({"sources": {"S": None}}, "sources: 'S' is NoneType; str is needed"),
        ({"records": {}}, "the file: 'records' is dict; list is needed"),
        ({1: 2}, "unknown key '1'"),
    ],
)
def test_published_values_of_another_kind_are_refused_by_name(tmp_path, change, said):
    (tmp_path / "published.yaml").write_text(yaml.safe_dump(_PUBLISHED | change))
    with pytest.raises(BadInput, match=said):
        published.load(tmp_path / "published.yaml")
