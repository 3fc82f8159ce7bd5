"""Values that are read from the device: kept there, and read together later."""
