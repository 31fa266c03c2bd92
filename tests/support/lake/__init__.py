"""What looks into a lake without the code of rounds: the checker, engines, positions."""
