"""Adapt a model to documents: train on them, compare on held-out ones, and keep the better model."""

from pathlib import Path

CONFIG = Path(__file__).parents[1] / "configs" / "adapt.yaml"
