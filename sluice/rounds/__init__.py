"""One round of tiering: plan, copy (runs on executors), commit, recover, report."""
