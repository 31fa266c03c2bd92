"""What a user does on the page: each act is checked, written down, and used as it was checked.

Begin with ``acts``; ``routes`` is the POST part of the JSON API.
"""
