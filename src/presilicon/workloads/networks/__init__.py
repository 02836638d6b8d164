"""Networks that the field measures itself by, in plain torch."""
