import pytest


@pytest.fixture(params=["bert_tokenizer", "roberta_tokenizer"])
def tokenizer(request):
    """Both kinds of tokenizer in turn."""
    return request.getfixturevalue(request.param)
