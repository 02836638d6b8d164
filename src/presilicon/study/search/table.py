"""The table of a study on disk: a line of JSON per point and stage, appended as results come in."""

import os
from collections.abc import Iterable
from pathlib import Path

import msgspec

from presilicon.base import RunFailedError
from presilicon.records import PointRecord

POINTS_FILE = "points.jsonl"
_decoder = msgspec.json.Decoder(PointRecord)


class PointTable:
    """Records of points by key and stage; the process that holds the study's lock appends to them.

    Each batch of records is one write to a file opened for appending: whatever happens to the process, only a last,
    incomplete line can be lost, and it is cut off when the table is opened again.
    """

    def __init__(self, directory: Path) -> None:
        self.path = directory / POINTS_FILE
        self.records: dict[tuple[str, str], PointRecord] = {}
        self._cut_torn_line()
        for record in read_points(directory):
            self.records[record.key, record.stage] = record

    def _cut_torn_line(self) -> None:
        try:
            content = self.path.read_bytes()
        except FileNotFoundError:
            return
        if content and not content.endswith(b"\n"):
            os.truncate(self.path, content.rfind(b"\n") + 1)

    def append(self, records: Iterable[PointRecord]) -> None:
        """Add records that are not there yet.

        Raises:
            RunFailedError: the file cannot be written.
        """
        new = [record for record in records if (record.key, record.stage) not in self.records]
        lines = b"".join(msgspec.json.encode(record) + b"\n" for record in new)
        try:
            with self.path.open("ab", buffering=0) as file:
                while lines:
                    lines = lines[file.write(lines) :]
        except OSError as error:
            raise RunFailedError(f"{self.path}: cannot be written ({error.strerror or error})") from None
        self.records |= {(record.key, record.stage): record for record in new}

    def get(self, key: str, stage: str) -> PointRecord | None:
        """The record of a point at a stage, if there is one."""
        return self.records.get((key, stage))


def read_points(directory: Path) -> list[PointRecord]:
    """The records in a study's directory, in the order in which they came; lines that cannot be read are skipped."""
    try:
        lines = (directory / POINTS_FILE).read_bytes().split(b"\n")
    except OSError:
        return []
    records = []
    for line in lines:
        try:
            records.append(_decoder.decode(line))
        except (msgspec.MsgspecError, UnicodeDecodeError):
            continue
    return records
