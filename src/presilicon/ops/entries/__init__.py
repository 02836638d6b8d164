"""The entries of torch's operators, by what they do; every module here has a list `ENTRIES`."""
