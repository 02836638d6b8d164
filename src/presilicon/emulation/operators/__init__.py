"""Custom operators in a model: instead of torch's functions."""

from presilicon.emulation.operators.replacement import Replacements

__all__ = ["Replacements"]
