"""Both stages of InfoCSE on text from a small grammar: `make quickstart`."""
