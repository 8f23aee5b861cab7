"""The report: what a run is, how it trained, and how it scores, for people to read."""

LIMIT = 3000  # sentences that can be searched
