"""Training methods, one file each: parameters, what they do to a step, and what that does to cost.

They are found by name: `presilicon.designs.METHODS.load("batch-growth")`.
"""

from typing import TYPE_CHECKING

from presilicon.base import deferred

if TYPE_CHECKING:
    from presilicon.methods.ada_gp import speedup
    from presilicon.methods.camel import Camel

__getattr__ = deferred(__name__)

__all__ = ["Camel", "speedup"]
