"""`python -m adapt MODEL --text FILE ... --output DIR`: better search in your own documents, or the start as it was."""

from __future__ import annotations

from common.errors import run_command

# isort: split

from adapt.command import main

if __name__ == "__main__":
    run_command(main)
