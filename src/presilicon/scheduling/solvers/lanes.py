"""Busy times of one unit or link."""

from bisect import bisect_left


class Lane:
    """Busy intervals in order of time; intervals that touch are merged."""

    def __init__(self) -> None:
        self.begins: list[float] = []
        self.ends: list[float] = []

    def take(self, begin: float, end: float) -> None:
        """Occupy an interval that is free."""
        if end <= begin:
            return
        index = bisect_left(self.begins, begin)
        joins_before = index > 0 and self.ends[index - 1] >= begin - 1e-15
        joins_after = index < len(self.begins) and self.begins[index] <= end + 1e-15
        if joins_before and joins_after:
            self.ends[index - 1] = self.ends[index]
            del self.begins[index], self.ends[index]
        elif joins_before:
            self.ends[index - 1] = end
        elif joins_after:
            self.begins[index] = begin
        else:
            self.begins.insert(index, begin)
            self.ends.insert(index, end)

    def earliest(self, ready: float, length: float) -> float:
        """The first time from `ready` at which it is free for `length`."""
        index = bisect_left(self.ends, ready + 1e-15)
        begin = ready
        while index < len(self.begins) and self.begins[index] < begin + length - 1e-15:
            begin = self.ends[index]
            index += 1
        return begin
