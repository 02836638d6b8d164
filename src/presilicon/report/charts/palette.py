"""Colours of designs that people with any colour vision can distinguish, on light and dark backgrounds.

They start from the Okabe-Ito palette, darkened or lightened until each has enough contrast. Designs after the fifth
also get a dashed line, so that nobody has to distinguish ten colours.
"""

LIGHT: tuple[str, ...] = (
    "#0072b2",
    "#d55e00",
    "#00876c",
    "#b8479b",
    "#a87b00",
    "#3a96d2",
    "#5b3a96",
    "#737373",
    "#8c2d3f",
    "#667a14",
)
DARK: tuple[str, ...] = (
    "#5aa9e6",
    "#ff8a4c",
    "#35c9a5",
    "#e58bc8",
    "#f2c14e",
    "#9ad7ff",
    "#a68cf0",
    "#b4b4b4",
    "#e8788a",
    "#b8cc5a",
)
SOLID = 5
"""Number of designs with a solid line; later ones are dashed."""
