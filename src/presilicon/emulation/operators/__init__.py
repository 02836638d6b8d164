"""Custom operators on tensors: executed on CPU and GPU, in autograd, instead of torch's functions."""

from presilicon.emulation.operators.application import apply_operator
from presilicon.emulation.operators.replacement import Replacements

__all__ = ["Replacements", "apply_operator"]
