"""Data sets in shards: files that hold many pictures each, read by index."""
