"""Statuses, claims and leases as tests need them."""
