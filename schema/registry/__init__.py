"""Registries: rates, thresholds and what they rest on."""
