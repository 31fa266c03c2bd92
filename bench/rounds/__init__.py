"""Rounds in one process: cost, memory, bytes."""
