"""The table of a study on disk: a line of JSON per point and stage, appended as results come in."""

from collections.abc import Iterable
from pathlib import Path

import msgspec

from presilicon.records import PointRecord
from presilicon.runs import AppendLog

POINTS_FILE = "points.jsonl"
_decoder = msgspec.json.Decoder(PointRecord)


class PointTable:
    """Records of points by key and stage; the process that holds the study's lock appends to them."""

    def __init__(self, directory: Path) -> None:
        self.path = directory / POINTS_FILE
        self.records: dict[tuple[str, str], PointRecord] = {
            (record.key, record.stage): record for record in read_points(directory)
        }

    def append(self, records: Iterable[PointRecord]) -> None:
        """Add records that are not there yet.

        Raises:
            RunFailedError: the file cannot be written.
        """
        new = [record for record in records if (record.key, record.stage) not in self.records]
        AppendLog(self.path).append(b"".join(msgspec.json.encode(record) + b"\n" for record in new))
        self.records |= {(record.key, record.stage): record for record in new}

    def get(self, key: str, stage: str) -> PointRecord | None:
        """The record of a point at a stage, if there is one."""
        return self.records.get((key, stage))


def read_points(directory: Path) -> list[PointRecord]:
    """The records in a study's directory, in the order in which they came; lines that cannot be read are skipped."""
    records = []
    for line in AppendLog(directory / POINTS_FILE).lines():
        try:
            records.append(_decoder.decode(line))
        except (msgspec.MsgspecError, UnicodeDecodeError):
            continue
    return records
