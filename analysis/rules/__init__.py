"""Rules that route runs and groups: data in schema/rules, read, checked and evaluated here."""
