"""The Prometheus metrics of the embedded server and of ``sluice exporter``, at ``/metrics``.

Gauges of tables are read at each scrape. Counters have no table label, so that memory does not grow
with tables that are created and dropped.
"""
