"""Text in, batches out; nothing here imports a model."""
