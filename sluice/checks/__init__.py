"""What a round needs, looked at before it costs anything; also by `sluice doctor`."""
