"""Foundation of all rooms: errors, units, seeds, configuration, extension points."""
