"""The papers' tables as data, the commands that fill them, and studies of the methods."""
