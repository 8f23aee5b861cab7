"""The best search for documents with a model: compare searches on queries made from them, write the better one."""

from common.files import ROOT

CONFIG = ROOT / "configs" / "adapt.yaml"
