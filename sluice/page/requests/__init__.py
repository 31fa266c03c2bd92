"""What the routes of the page share: who asks, what they may call, and how errors become answers.

Begin with ``ports`` (where the page is served) and ``calls`` (what a request may ask the cluster,
within a bound). ``guard`` turns errors into one line.
"""
