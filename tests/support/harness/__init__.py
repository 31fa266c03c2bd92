"""How tests run: pytest plugins, quick Java, flaky tests, marks."""
