"""Measurements of speed and memory; each file gives one row."""
