"""A worked example without downloads: search in the docstrings of installed packages, before and after `adapt`."""
