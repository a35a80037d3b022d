"""What the boundary corpus is built around, and the routes that are expected of it."""
