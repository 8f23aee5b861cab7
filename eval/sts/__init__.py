"""Semantic textual similarity."""
