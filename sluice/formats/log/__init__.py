"""Log batches: Arrow or rows, their headers, checksums and projections (docs/fluss/log-batches.md).

Begin with ``batch``. ``log_format`` chooses by the table's format, ``projection`` drops columns
without decoding, ``checks`` says whether readers can decode a batch.
"""
