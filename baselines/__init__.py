"""Baselines of the papers' tables that train no encoder: whitening, flow, averaged word vectors."""
