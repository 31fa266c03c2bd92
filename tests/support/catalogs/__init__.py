"""Real servers of catalogs and stores on loopback, as context managers for tests."""
