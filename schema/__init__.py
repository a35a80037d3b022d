"""Data of the package: migrations, registries and JSON Schemas."""
