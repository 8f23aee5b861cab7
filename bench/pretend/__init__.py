"""A pretend CUDA device: what a training step asks of a GPU, counted on a machine without one. It times nothing."""
