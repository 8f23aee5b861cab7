"""What several tests of the models share."""

import pytest


@pytest.fixture(params=["tiny_bert", "tiny_roberta"])
def folder(request):
    """Both tiny models, one after the other."""
    return str(request.getfixturevalue(request.param))
