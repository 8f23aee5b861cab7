"""A pretend CUDA device that counts the GPU operations of a training step on a machine without a GPU."""
