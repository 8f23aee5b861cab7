"""Evaluation: everything here sees a model as one callable, `encode(list[str]) -> (N, D)`."""
