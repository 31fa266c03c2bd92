"""Real servers of catalogs and stores on loopback, as context managers; tests/support/catalogs has
more.
"""
