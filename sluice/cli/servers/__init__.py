"""Commands that serve until they are stopped: serve, ui, exporter."""
