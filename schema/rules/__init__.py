"""Rules: what is said of a bound, and why; one file a kind, and their index."""
