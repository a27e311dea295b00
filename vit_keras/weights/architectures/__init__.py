"""The sizes that decide the names and shapes of a model's variables."""
