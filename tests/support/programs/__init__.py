"""The project's programs as processes that a test can stop, continue and kill."""
