"""Fast training."""
