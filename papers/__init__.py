"""The papers' tables and published numbers as data, the commands that fill them, and three studies of the methods."""
