"""Evaluation: everything here sees a model as one callable, `encode(list[str]) -> (N, D)`.

analyse/        the papers' analyses of sentence vectors; each is a small function on arrays
compare/        is the difference between two models, or to a published number, more than chance?
encode_corpus/  the vectors of a corpus of any size, in folders as of `vectors.py`
metrics/        cosines of pairs; Spearman and Pearson; nDCG and others of a ranking
retrieval/      in-domain on STS-B, and any set in BEIR's format
transfer/       SentEval's transfer tasks
store.py        vectors that are kept by their text, for search and its evaluation
"""
