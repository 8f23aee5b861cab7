"""Code that every folder shares; imports nothing else of this project."""
