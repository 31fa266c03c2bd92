"""Tables with rows: the shortest ways to write, read and damage them."""
