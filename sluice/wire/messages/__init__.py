"""What is inside messages: paths, statuses, buckets, frames. No sockets.

Begin with ``frames`` (Fluss's native protocol) and ``status_messages``.
"""
