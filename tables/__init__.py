"""Tables made from what is in the repository."""
