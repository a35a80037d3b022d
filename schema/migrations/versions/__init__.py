"""Migrations, oldest first."""
