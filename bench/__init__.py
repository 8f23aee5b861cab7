"""Benchmarks of speed and memory, as ratios to a plain implementation in the same process."""
