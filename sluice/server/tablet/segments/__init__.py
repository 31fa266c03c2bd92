"""The files of a log: segments of batches, and their indexes. Begin with ``segment``."""
