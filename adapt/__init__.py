"""The best search for documents with a model, by queries that are made from them."""
