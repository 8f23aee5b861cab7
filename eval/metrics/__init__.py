"""Our metrics as `evaluate.Metric` classes; each file also loads by path, offline: `evaluate.load(FILE)`."""
