import pickle

import pytest

from errors import BadInput, run_command


@pytest.mark.parametrize(
    ("message", "line"),
    [
        ("a.txt:3: what; do", "a.txt:3: what; do"),
        ("first\n  second\r\nthird", "first second third"),
        ("a\x1b[31mred\x07", "a\\x1b[31mred\\x07"),
        ("left\u202eright\u2028next\ud800", "left\\u202eright\\u2028next\\ud800"),
        ("Zwölf 🙂", "Zwölf 🙂"),
    ],
)
def test_a_message_is_one_line_that_a_terminal_shows_as_it_is(message, line, capsys):
    error = BadInput(message)
    assert str(error) == str(pickle.loads(pickle.dumps(error))) == line

    def main():
        raise error

    with pytest.raises(SystemExit) as leaving:
        run_command(main)
    assert leaving.value.code == 2
    assert capsys.readouterr().err == f"error: {line}\n"
