"""Archives: whatever their names and bytes, only regular files inside the target appear."""

import io
import tarfile

from hypothesis import given
from hypothesis import strategies as st

from data.archive import extract
from tests.fuzz.damage import MANY, damaged, result

_PARTS = ["a", "b", "..", ".", "", "~", "C:", "\\", "\n", "ä", "x" * 120]
_NAMES = st.lists(st.sampled_from(_PARTS), min_size=1, max_size=4)
_KINDS = [tarfile.REGTYPE] * 6 + [tarfile.DIRTYPE, tarfile.SYMTYPE, tarfile.LNKTYPE, tarfile.FIFOTYPE, tarfile.CHRTYPE]
_KINDS += [tarfile.GNUTYPE_SPARSE, tarfile.CONTTYPE, b"Q"]
_MEMBERS = st.lists(st.tuples(_NAMES, st.sampled_from(_KINDS), st.binary(max_size=700)), min_size=1, max_size=4)


def _tar(members, mode="w", form=tarfile.PAX_FORMAT):
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode=mode, format=form) as tar:
        for name, entry, content in members:
            info = tarfile.TarInfo("/".join(name))
            info.type, info.linkname, info.size = (
                entry,
                "../outside",
                len(content) if entry in (b"0", b"7", b"Q") else 0,
            )
            tar.addfile(info, io.BytesIO(content))
    return packed.getvalue()


_VALID = [_tar([(["a", name], b"0", b"text\n" * 9) for name in "xyz"], mode) for mode in ("w", "w:gz")]


def _extracted(folder, content):
    """What `extract` made of an archive, after the checks that hold for all of them."""
    inside = folder / "in" / "target"
    inside.mkdir(parents=True, exist_ok=True)
    for path in sorted(inside.rglob("*"), reverse=True):
        path.unlink() if path.is_file() else path.rmdir()
    (folder / "in" / "x.tar").write_bytes(content)
    done = result(extract, folder / "in" / "x.tar", inside, lambda name: name)
    assert {path.name for path in folder.iterdir()} == {"in"}
    assert {path.name for path in (folder / "in").iterdir()} == {"target", "x.tar"}
    made = [path for path in inside.rglob("*") if not path.is_dir() or path.is_symlink()]
    assert all(path.is_file() and not path.is_symlink() for path in made)
    assert done is None or sorted(done[0]) == sorted(str(path.relative_to(inside)) for path in made)
    return done


@MANY
@given(st.sampled_from(_VALID), st.data())
def test_damaged_archives_write_inside_the_target_or_are_refused(tmp_path, valid, data):
    _extracted(tmp_path, data.draw(damaged(valid, [b"../", b"\x00" * 512, b"/", b"2", b"x", b"\x1f\x8b", b"7777777"])))


@MANY
@given(_MEMBERS, st.sampled_from([tarfile.PAX_FORMAT, tarfile.GNU_FORMAT, tarfile.USTAR_FORMAT]))
def test_archives_of_any_members_write_inside_the_target_or_are_refused(tmp_path, members, form):
    try:
        content = _tar(members, form=form)
    except ValueError:  # a name that this format has no room for
        return
    done = _extracted(tmp_path, content)
    if done is not None:
        expected = [content for name, entry, content in members if entry == b"0" and ".." not in name]
        assert len(done[0]) == len(expected)
        written = sum((tmp_path / "in" / "target" / name).stat().st_size for name in done[0])
        assert written == sum(map(len, expected))
