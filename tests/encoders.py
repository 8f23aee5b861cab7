"""Encoders of saved folders, and pairs to compare two of them on; slower to import than `tests.eval.toys`."""

from eval.encode import Encode
from eval.sts import Pairs, read_columns
from models.encoder import load_encoder


def encode_of(folder, pooling=None):
    """How a folder's model encodes."""
    encoder, tokenizer = load_encoder(str(folder), pooling)
    return Encode(encoder, tokenizer)


def unequal_pairs(dev_file):
    """Graded pairs without those of a sentence and itself.

    Their cosine is 1 here, and 1 give or take float32's rounding where each side is encoded anew: such pairs would be
    tied in one and ordered by chance in the other.
    """
    read = read_columns(dev_file, "score", "sentence1", "sentence2")
    rows = [row for row in zip(read.left, read.right, read.gold, strict=True) if row[0] != row[1]]
    return Pairs(*map(list, zip(*rows, strict=True)))
