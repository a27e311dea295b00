"""Each backend's own code for the layers; nothing else in `layers` knows backends."""
