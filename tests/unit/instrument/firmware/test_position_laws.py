"""What is wrong with a firmware is found wherever it stands among what is right, and named by its place."""

from collections.abc import Callable

import pytest

from presilicon.base import ConfigError
from presilicon.designs import Hardware
from presilicon.formats import parse
from presilicon.instrument import Firmware, RangeRow, compile_firmware

HARDWARE = Hardware(
    lanes=4, ranges=2, range_rows=8, scratchpad_rows=4, chains=16, element=parse("int8"), taps=5, controls=5
)
COUNT = 4
SUM = ({"op": "v_reduce"}, {"op": "v_commit"})
WRONG = ({"op": "v_commit"}, {"op": "v_reduce"})
ROW, FALLING = RangeRow(boundaries=(-1.0, 0.0, 1.0)), RangeRow(boundaries=(1.0, 0.0, -1.0))


def of_sampling(place: int, is_wrong: bool) -> None:
    sampling = [1, 2, 3, 4, 65535]
    sampling[place] = 65536 if is_wrong else 0
    compile_firmware(Firmware(), HARDWARE, sampling=sampling)


def of_controls(place: int, is_wrong: bool) -> None:
    values = dict.fromkeys(range(COUNT), 5) | {place: 1 << 32 if is_wrong else (1 << 32) - 1}
    compile_firmware(Firmware(), HARDWARE, controls=values)


def of_registers(place: int, is_wrong: bool) -> None:
    registers = [0, 1, 2, 3]
    registers[place] = 5 if is_wrong else 4
    compile_firmware(Firmware(), HARDWARE, controls=dict.fromkeys(registers, 7))


def of_rows(place: int, is_wrong: bool) -> None:
    rows = {number: FALLING if is_wrong and number == place else ROW for number in range(COUNT)}
    compile_firmware(Firmware(), HARDWARE, rows=rows)


def of_chains(place: int, is_wrong: bool) -> None:
    listed = [list(WRONG if is_wrong and number == place else SUM) for number in range(COUNT)]
    compile_firmware(Firmware.from_chains(listed), HARDWARE)


CASES: dict[str, tuple[Callable[[int, bool], None], str]] = {
    "sampling": (of_sampling, "tap {place} is 65536"),
    "control values": (of_controls, "register {place} is 4294967296"),
    "control registers": (of_registers, "control register 5"),
    "rows": (of_rows, "range row {place}"),
    "chains": (of_chains, "chain {number}"),
}


@pytest.mark.parametrize("place", range(COUNT))
@pytest.mark.parametrize("case", CASES)
def test_a_mistake_is_found_at_every_place(case: str, place: int) -> None:
    compile_case, words = CASES[case]
    compile_case(place, False)
    with pytest.raises(ConfigError, match=words.format(place=place, number=place + 1)):
        compile_case(place, True)


@pytest.mark.parametrize("first", range(COUNT))
@pytest.mark.parametrize("second", range(COUNT))
def test_a_tap_has_one_program_and_exists(first: int, second: int) -> None:
    def compiled(place: int, tap: int):
        firmware = Firmware()
        for number in range(COUNT):
            with firmware.program([tap if number == place else number]), firmware.chain():
                firmware.total()
                firmware.commit(1)
        return compile_firmware(firmware, HARDWARE)

    assert len(compiled(first, first if first != second else 4).chains) == COUNT
    with pytest.raises(ConfigError, match="a program is for tap 5"):
        compiled(first, 5)
    if first != second:
        with pytest.raises(ConfigError, match=f"tap {second} has two programs"):
            compiled(first, second)
