"""Encoders of saved folders; slower to import than `tests.eval.toys`."""

from eval.encode import Encode
from models.encoder import load_encoder


def encode_of(folder, pooling=None):
    """How a folder's model encodes."""
    encoder, tokenizer = load_encoder(str(folder), pooling)
    return Encode(encoder, tokenizer)
