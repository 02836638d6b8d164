"""One module per family of number formats, with everything the package knows about the family."""
