"""The HTML report: what runs are, how they trained, and how they score."""

LIMIT = 3000  # searchable sentences
