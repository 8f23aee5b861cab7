"""Adapt a model to documents: train on them, compare on held-out ones, and keep the better model."""
