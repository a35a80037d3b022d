"""Weight of evidence on what a run was for: channels, their sums, and what they cannot tell. Never a verdict."""
