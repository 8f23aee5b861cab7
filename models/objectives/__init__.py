"""One file per method; this folder is the registry, and `--method NAME` imports `NAME.py`."""
