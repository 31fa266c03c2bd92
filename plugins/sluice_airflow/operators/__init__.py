"""The operator that tiers one table."""
