"""Row and batch formats, and the compiled loops behind them."""
