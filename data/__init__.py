"""Text in, batches out; nothing here knows a model."""
