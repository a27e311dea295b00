"""The table of published weight files, and their download into the Keras cache."""
