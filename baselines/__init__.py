"""The papers' baselines that train no encoder: whitening, flow, averaged word vectors."""
