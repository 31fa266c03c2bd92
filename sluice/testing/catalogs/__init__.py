"""Real servers of catalogs and stores on loopback, as context managers; tests have more of them."""
