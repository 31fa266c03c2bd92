"""Messages, the table of calls, error codes, and the transports."""
