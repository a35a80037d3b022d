"""Pure analysis: rates, bounds, verdicts and groups. No input or output here."""
