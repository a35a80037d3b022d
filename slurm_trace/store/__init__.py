"""The SQL store: models, migrations, ingest and the tables that the analysis reads."""
