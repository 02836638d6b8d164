"""Standard benchmark networks in plain torch."""
