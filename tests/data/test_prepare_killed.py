"""`python -m data.prepare` killed while it downloads, unpacks and moves."""

import pytest

from tests.faults.forked import check_kills


@pytest.mark.parametrize("part", ["sts", pytest.param("wiki1m", marks=pytest.mark.slow)])
def test_a_killed_command_leaves_whole_files_and_the_same_command_ends(corpora, part):
    def at(folder):
        return type(corpora)(corpora.hub, folder)

    check_kills(lambda folder: at(folder).prepare(part), corpora.root.parent, lambda folder: at(folder).placed(), 6)
