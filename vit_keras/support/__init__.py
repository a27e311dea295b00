"""What every package may use: files, locks, extras, figures, and the private names of Keras."""
