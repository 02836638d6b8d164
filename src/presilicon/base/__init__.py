"""What every room stands on: errors, units, seeds, configuration."""
