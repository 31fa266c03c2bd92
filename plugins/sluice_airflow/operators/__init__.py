"""The operators of the tiering tasks."""
