"""Curves and figures: as SVG for pages, and with matplotlib for papers."""
