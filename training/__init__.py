"""What a run is: its parts, its Trainer, its folder, and what may happen to it."""
