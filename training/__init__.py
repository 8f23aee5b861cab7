"""Training runs: model assembly, Trainer, run folder, checkpoints and faults."""
