"""What both writers share: Arrow data to idempotent batches for each bucket, sent in parallel.

Begin with ``bucket_writer``. ``sender`` sends in order for each bucket, ``pending_batches`` knows
what is stored.
"""
