import pytest

from tests.eval.toys import BeirFolder


@pytest.fixture
def beir(tmp_path):
    return BeirFolder(tmp_path)
