"""A link within this process, for tests of both of its ends."""


class Loopback:
    """An end of a link within this process; `other` is the other end."""

    def __init__(self, other: "Loopback | None" = None) -> None:
        self._arrived = bytearray()
        self.other: Loopback = other or Loopback(self)

    def send(self, data: bytes) -> None:
        """Pass bytes to the other end."""
        self.other._arrived += data

    def receive(self) -> bytes:
        """Bytes that arrived since the last call."""
        data = bytes(self._arrived)
        self._arrived.clear()
        return data

    def close(self) -> None:
        """Nothing to do."""
