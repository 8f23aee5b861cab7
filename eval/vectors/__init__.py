"""Vectors on disk: a store of shards, and the job that fills it from a corpus of any size."""
