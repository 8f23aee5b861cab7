"""A worked example with no download: search in the docstrings of installed packages, before and after `adapt`."""
