"""A corpus of any size as vectors: a shard of text in, a shard of vectors out, and a killed run goes on."""
