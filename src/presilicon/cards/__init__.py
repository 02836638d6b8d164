"""Measures processors and cards: layers timed on them, the machines fitted to these times, and tables of op times.

Importing this room loads neither torch nor numpy; names that need them are resolved when they are first used.
"""

from typing import TYPE_CHECKING

from presilicon.base import deferred

if TYPE_CHECKING:
    from presilicon.cards.benches import EnergyMeter, keep_memory, processor_name
    from presilicon.cards.characterizing import (
        characterize_card,
        characterize_processor,
        check_peaks,
        describe_card,
        own_layers,
        read_card,
    )
    from presilicon.cards.op_tables import characterize, to_table

__getattr__ = deferred(__name__)

__all__ = [
    "EnergyMeter",
    "characterize",
    "characterize_card",
    "characterize_processor",
    "check_peaks",
    "describe_card",
    "keep_memory",
    "own_layers",
    "processor_name",
    "read_card",
    "to_table",
]
