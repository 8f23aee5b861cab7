"""Retrieval: in-domain on STS-B, and any set in BEIR's format."""
