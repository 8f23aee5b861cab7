"""The command `python -m eval.encode_corpus`; `eval.vectors` does the work."""
