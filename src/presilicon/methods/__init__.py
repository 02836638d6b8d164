"""Training methods, one file each: parameters, what they do to a step, and what that does to cost.

They are found by name: `presilicon.designs.METHODS.load("batch-growth")`.
"""
