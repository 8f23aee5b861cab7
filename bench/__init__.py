"""Speed and memory, always as a ratio against a plain implementation in the same process."""
