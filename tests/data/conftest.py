import pytest


def written(folder, content, name="text.txt"):
    path = folder / name
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    return path


@pytest.fixture(params=["bert_tokenizer", "roberta_tokenizer"])
def tokenizer(request):
    """Both kinds of tokenizer in turn."""
    return request.getfixturevalue(request.param)
