"""Training methods on labelled rows: one file each, the folder is the list of them (`run_sup.py`)."""
