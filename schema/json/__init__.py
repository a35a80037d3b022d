"""JSON Schemas of the registries and of every JSON that is printed."""
