"""From documents to a better search: train on them, judge on held-out ones, and ship what is better."""
