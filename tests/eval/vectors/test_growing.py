import numpy as np
import pytest

from eval.vectors.growing import GrowingArray


@pytest.mark.parametrize("dtype", [np.int8, np.float16, np.int32, np.int64])
@pytest.mark.parametrize("row", [(), (3,)])
def test_pieces_become_one_file_that_numpy_reads_and_maps(tmp_path, dtype, row):
    pieces = [np.arange(np.prod((n, *row)), dtype=dtype).reshape(n, *row) for n in (2, 0, 7, 12_345)]
    with GrowingArray(tmp_path / "a.npy", dtype) as array:
        for piece in pieces:
            array.append(piece)
    found = np.load(tmp_path / "a.npy", mmap_mode="r")
    assert (found.dtype, found.shape) == (dtype, array.shape)
    assert np.array_equal(found, np.concatenate(pieces))


def test_without_rows_there_is_no_file_and_other_rows_are_refused(tmp_path):
    with GrowingArray(tmp_path / "a.npy", np.int32):
        pass
    assert list(tmp_path.iterdir()) == []
    with pytest.raises(ValueError, match="after rows of"), GrowingArray(tmp_path / "a.npy", np.int32) as array:
        array.append(np.zeros((2, 3)))
        array.append(np.zeros((2, 4)))


def test_an_array_that_was_not_finished_reads_as_empty(tmp_path):
    with pytest.raises(KeyboardInterrupt), GrowingArray(tmp_path / "a.npy", np.int32) as array:
        array.append(np.zeros((2, 3)))
        raise KeyboardInterrupt
    assert np.load(tmp_path / "a.npy").shape == (0, 3)
