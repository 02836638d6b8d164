"""Presilicon: how long, and how many joules, a design needs to train a model to an accuracy, before silicon exists."""

__version__ = "0.1.0"
