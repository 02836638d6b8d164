"""The element of formats that put a scale on another format's numbers."""

from presilicon.formats.families.fixed import Fixed
from presilicon.formats.families.float import Float
from presilicon.formats.format import require


class ElementFields:
    """Properties that a scaled format has from its `element`."""

    __slots__ = ()

    element: Float | Fixed

    @property
    def bits(self) -> int:
        """Width of an element."""
        return self.element.bits

    @property
    def significand_bits(self) -> int:
        """Significand bits of the element."""
        return self.element.significand_bits

    @property
    def exponent_bits(self) -> int:
        """Exponent bits of the element."""
        return self.element.exponent_bits

    @property
    def has_negative_zero(self) -> bool:
        """Whether the element has -0."""
        return self.element.has_negative_zero


def element_of(element: object, name: str) -> Float | Fixed:
    """The element of the scaled format `name`, parsed if it is text. Raises `FormatError` if it cannot be scaled."""
    if isinstance(element, str):
        from presilicon.formats.grammar import parse

        element = parse(element)
    usable = isinstance(element, Float) or (
        isinstance(element, Fixed) and element.signed and element.overflow == "saturate"
    )
    require(usable, name, f"element must be a float or a signed, saturating fixed format, not {element!r}")
    assert isinstance(element, Float | Fixed)
    width = element.significand_bits
    require(width <= 16, name, f"element must have at most 16 significant bits, not {width}")
    return element
