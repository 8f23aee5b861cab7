"""YAML: configurations."""

import string

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from common.errors import BadInput
from common.files import read_yaml
from tests.fuzz.damage import MANY, damaged, result
from training.settings import read_config

_CONFIG = b"method: simcse\nlearning_rate: 3e-5\ntrain_file: [a.txt, b.txt]\n# no: 1\nseed: 010\nrun_name: 'x: y'\n"
_SCRAPS = [
    b"!!python/object/apply:os.system [x]",
    b"!!map ",
    b"!!set ",
    b"!!int ",
    b"!!float ",
    b"!!timestamp ",
    b"!!omap ",
]
_SCRAPS += [b"!!binary ", b"!!bool ", b"&a ", b"*a", b"<<: ", b"? ", b"- "]
_SCRAPS += [b": ", b"{" * 3000, b"- " * 3000, b"---\n", b"|\n", b"~", b"0b_"]
_SCRAPS += [b"0x_", b"2001-99-99", b"1:99", b"%YAML 9.9\n", b"[1, 2]: 3\n", b".inf", b"%TAG ! x\n"]
_SCRAPS += [b'"\\UFFFFFFFF"', b"!<", b">", b"\\", b"...\n"]


@MANY
@given(damaged(_CONFIG, _SCRAPS))
def test_a_configuration_is_read_as_words_or_refused(tmp_path, content):
    path = tmp_path / "config.yaml"
    path.write_bytes(content)
    parsed = result(read_config, str(path))
    for value in (parsed or {}).values():
        assert all(type(part) is str and part for part in (value if isinstance(value, list) else [value]))


_WORD = st.text(string.ascii_letters + string.digits + " .:#-'\"~!&*[]{}<>%@,\u00e9", min_size=1, max_size=9)


@MANY
@given(st.dictionaries(_WORD, _WORD | st.lists(_WORD, min_size=1, max_size=3), min_size=1, max_size=4))
def test_a_configuration_that_was_written_is_read(tmp_path, content):
    path = tmp_path / "config.yaml"
    path.write_text(yaml.safe_dump(content), encoding="utf-8")
    assert read_config(str(path)) == content


@pytest.mark.parametrize("text", ["!!map [a]", "!!set x", "a: !!int ''", "a: 0b_", "{" * 5000, "a: !!bool x", "<<: 1"])
def test_yaml_that_breaks_the_library_is_refused(tmp_path, text):
    (tmp_path / "x.yaml").write_text(text)
    with pytest.raises(BadInput, match="not a YAML file"):
        read_yaml(tmp_path / "x.yaml")
