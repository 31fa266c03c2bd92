"""Real servers of object stores, which tests start on free ports of this machine."""
