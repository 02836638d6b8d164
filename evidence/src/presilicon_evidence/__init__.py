"""Evidence for Presilicon: what is published and measured, beside what it computes."""

__version__ = "0.1.0"
