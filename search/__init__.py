"""Search in documents: `python -m search`.

documents.py    files and folders -> documents; their windows, and snippets
index.py        vectors, BM25 and texts, in memory or in a folder; the best documents for a query
"""
