"""Training runs: commands, Trainer, run folder, checkpoints and faults."""
