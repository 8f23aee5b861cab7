"""The papers' tables as data and the command that fills them; the README's table of methods."""
