"""Peers, proxies and ports: clients and servers that behave badly on request."""
