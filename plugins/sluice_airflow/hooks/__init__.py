"""The hook of the connection type ``fluss``."""
