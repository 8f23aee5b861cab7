"""The best search for documents with a model, by queries that are made from them."""

from common.files import ROOT

CONFIG = ROOT / "configs" / "adapt.yaml"
