"""Reads a page of metrics over HTTP, as Prometheus does."""

from __future__ import annotations

from urllib.request import urlopen

from prometheus_client.parser import text_string_to_metric_families

Samples = dict[tuple[str, ...], float]
"""(name, label values in order of their names) -> value."""


def scrape(url: str) -> Samples:
    with urlopen(url, timeout=60) as answer:
        assert answer.headers["Content-Type"].startswith("text/plain")
        text = answer.read().decode()
    return {
        (sample.name, *(sample.labels[name] for name in sorted(sample.labels))): sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
    }
