"""Adapt a model to documents: train on them, compare on held-out ones, and keep the better model."""

from common.files import ROOT

CONFIG = ROOT / "configs" / "adapt.yaml"
