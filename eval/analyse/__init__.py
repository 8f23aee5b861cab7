"""What the papers plot of sentence vectors; each analysis is one small function on arrays."""
