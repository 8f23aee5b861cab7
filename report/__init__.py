"""The HTML report: what runs are, how they trained, and how they score."""

MARK = b"<!doctype html><!-- python -m report -->"  # how every page begins
