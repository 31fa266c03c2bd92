"""Whether the lake has the source's rows: facts computed twice, and each row.

Begin with ``compare``.
"""
