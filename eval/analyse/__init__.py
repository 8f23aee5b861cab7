"""Looking at vectors rather than scoring them: what the papers plot, each analysis one small function on arrays."""
