"""`python -m adapt MODEL --text FILE ... --output DIR`: the best search in your own documents."""

from __future__ import annotations

from common.errors import run_command

# isort: split

from adapt.command import main

if __name__ == "__main__":
    run_command(main)
