"""First runs without downloads: a training, a search in docstrings, a minute of both."""
