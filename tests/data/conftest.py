import io
import tarfile

import pytest


def packed(files, kind=tarfile.REGTYPE):
    """A tar archive; links in it lead outside."""
    archive = io.BytesIO()
    with tarfile.open(fileobj=archive, mode="w") as tar:
        for name, body in files.items():
            info = tarfile.TarInfo(name)
            info.size, info.linkname, info.type = len(body), "/etc/passwd", kind
            tar.addfile(info, io.BytesIO(body))
    return archive.getvalue()


def written(folder, content, name="text.txt"):
    path = folder / name
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    return path


@pytest.fixture(params=["bert_tokenizer", "roberta_tokenizer"])
def tokenizer(request):
    """Both kinds of tokenizer in turn."""
    return request.getfixturevalue(request.param)
