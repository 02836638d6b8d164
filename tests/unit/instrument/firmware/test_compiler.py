"""The compiler: what it refuses, with chain and instruction named; bubbles; the image and back."""

import itertools
import re

import pytest
from msgspec.structs import replace

from presilicon.base import ConfigError
from presilicon.designs import Hardware
from presilicon.formats import parse
from presilicon.instrument import Firmware, RangeRow, compile_firmware, disassemble, read_image
from presilicon.instrument.firmware.bubbles import with_bubbles
from presilicon.instrument.firmware.image import Chain

HARDWARE = Hardware(lanes=8, ranges=4, range_rows=2, scratchpad_rows=4, chains=4, element=parse("fixed(8, 8)"))


def op(name: str, **fields):
    return {"op": name, **fields}


def refusal(chains, hardware=HARDWARE, **options) -> str:
    with pytest.raises(ConfigError) as caught:
        compile_firmware(Firmware.from_chains(chains), hardware, **options)
    return str(caught.value)


@pytest.mark.parametrize(
    ("chains", "words"),
    [
        ([[op("v_reduce"), op("vv_add")]], ["chain 1, instruction 2 (vv_add)", "cannot follow v_reduce", "data goes"]),
        ([[op("v_commit"), op("v_cache")]], ["chain 1, instruction 2 (v_cache)", "cannot follow v_commit"]),
        ([[op("v_cache"), op("vv_add")]], ["instruction 2 (vv_add)", "cannot follow v_cache"]),
        ([[op("vv_add"), op("v_mc_load")]], ["instruction 2 (v_mc_load)", "cannot follow vv_add"]),
        ([[op("vv_add"), op("vv_mul")]], ["instruction 2 (vv_mul)", "one thing in a chain", "vv_add"]),
        ([[op("v_cache"), op("v_cache", addr=1)]], ["instruction 2 (v_cache)", "twice in one chain"]),
        ([[op("v_cache"), op("v_mc_save"), op("v_cache", addr=1)]], ["instruction 3 (v_cache)", "twice"]),
        ([[op("v_commit")], [op("vv_filter")]], ["chain 2, instruction 1 (vv_filter)", "needs m_reduce"]),
        ([[op("m_reduce", axis="M")]], ["chain 1, instruction 1 (m_reduce)", "needs vv_filter"]),
        ([[op("m_reduce", axis="M"), op("vv_filter")]], ["instruction 2 (vv_filter)", "cannot follow m_reduce"]),
        ([[op("vv_filter"), op("m_reduce", axis="K")]], ["instruction 2 (m_reduce)", "'K'", '"M"']),
        ([[op("vv_filter", addr=2), op("m_reduce", axis="M")]], ["(vv_filter)", "row 2", "0 to 1"]),
        ([[op("vv_add", addr=4)]], ["(vv_add)", "row 4", "0 to 3"]),
        ([[op("vv_add", addr=-1)]], ["(vv_add)", "row -1"]),
        ([[op("v_commit", size=3)]], ["(v_commit)", "size is 3", "1, 4 (M) or 8 (N)"]),
        ([[op("v_commit", size="K")]], ["(v_commit)", "size is 'K'"]),
        ([[op("v_reduce", function="mean")]], ["(v_reduce)", 'unknown function "mean"', "sum"]),
        ([[op("v_commit", conditions=["frist"])]], ["(v_commit)", 'did you mean "first"']),
        ([[op("v_commit", conditions=["last@2"])]], ["(v_commit)", "last@2"]),
        ([[op("v_commit", conditions=["first", "notfirst"])]], ["(v_commit)", "never hold together"]),
        ([[op("v_commit", conditions=["last@1", "notlast@1"])]], ["last@1 and notlast@1"]),
        ([[op("v_commit")]] * 5, ["5 chains", "room for 4"]),
        ([[op("m_reduce", axis="max"), op("v_commit")]], ["(m_reduce)", "axis is 'max'", "v_reduce (max) is another"]),
        ([[op("v_commit"), op("m_reduce", axis="max")]], ["(m_reduce)", "axis is 'max'"]),
        ([], ["no chains"]),
        ([[op("vv_div")]], ["chain 1, instruction 1", "vv_div"]),
        ([[op("vv_add", adr=1)]], ["(vv_add)", '"adr"', 'did you mean "addr"']),
        ([[op("v_reduce", conditions=["last"])]], ["(v_reduce)", "conditions"]),
        ([[op("v_mc_load", addr=1)]], ["(v_mc_load)", "addr"]),
        ([[op("m_reduce")]], ["(m_reduce)", '"axis" is missing']),
        ([[{"addr": 0}]], ["chain 1, instruction 1", '"op" is missing']),
        ([["vv_add"]], ["chain 1, instruction 1", "expected an object"]),
        ([{"op": "vv_add"}], ["chain 1", "expected a list"]),
        ({"op": "vv_add"}, ["expected a list of chains"]),
        ([[op("vv_add", addr="0")]], ["(vv_add)", "addr is '0'"]),
        ([[op("vv_add", addr=True)]], ["(vv_add)", "addr is True"]),
        ([[op("vv_add", addr=1.0)]], ["(vv_add)", "addr is 1.0"]),
        ([[op("v_commit", size=[1])]], ["(v_commit)", "size is [1]"]),
        ([[op("v_commit", conditions=7)]], ["(v_commit)", "conditions is 7"]),
        ([[op(["vv_add"])]], ["chain 1, instruction 1", "unknown op"]),
    ],
)
def test_what_is_refused(chains, words) -> None:
    message = refusal(chains)
    for word in words:
        assert word in message
    assert len(message) < 400


def test_a_chain_without_instructions_takes_a_cycle_and_does_nothing() -> None:
    chains = [[], [op("v_commit", size=1)], []]
    image = compile_firmware(Firmware.from_chains(chains), HARDWARE)
    assert read_image(image.to_bytes(), HARDWARE) == image
    assert image.initiation_interval(0) == 3
    assert "chain 1: nothing" in disassemble(image.to_bytes())


def test_another_order_of_blocks_allows_other_chains() -> None:
    chains = [[op("v_reduce"), op("vv_add"), op("v_commit")]]
    turned = replace(HARDWARE, blocks=("scalar_reduce", "vector_alu", "filter_reduce"))
    assert compile_firmware(Firmware.from_chains(chains), turned).chains[0].reduce == 1
    assert "vector_alu > filter_reduce" in refusal([[op("vv_filter"), op("m_reduce", axis="M"), op("vv_add")]], turned)


def test_what_was_not_built_is_refused() -> None:
    bare = replace(HARDWARE, blocks=("vector_alu",), alu=("add",), reduce=("sum",))
    assert "needs the block scalar_reduce" in refusal([[op("v_reduce")]], bare)
    assert '"mul" was not built' in refusal([[op("vv_mul")]], bare)
    assert "packer" not in refusal([[op("vv_filter"), op("m_reduce", axis="M")]], bare)
    part = replace(HARDWARE, reduce=("sum",))
    assert '"product" was not built' in refusal([[op("v_reduce", function="product")]], part)


@pytest.mark.parametrize(
    ("row", "words"),
    [
        ([0, 1, 2, 3], "4 boundaries, expected 5"),
        ([0, 1, 2, 3, 2.5], "boundary 5 is 2.5, below 3"),
        ([0, float("nan"), 2, 3, 4], "boundary 2 is NaN"),
        (["-inf", 0, "one", 1, "inf"], '"one"'),
        ([0, True, 2, 3, 4], "True"),
        ("0 1 2", "expected a list"),
    ],
)
def test_ranges_that_cannot_be(row, words) -> None:
    fw = Firmware()

    def give() -> None:
        fw.range_row(1, row)
        compile_firmware(fw, HARDWARE)

    with pytest.raises(ConfigError, match=re.escape(words)):
        give()


def test_rows_and_classes_that_cannot_be() -> None:
    fw = Firmware()
    fw.range_row(2, [0, 1, 2, 3, 4])
    with pytest.raises(ConfigError, match="range row 2, but the range rows are 0 to 1"):
        compile_firmware(fw, HARDWARE)
    fw = Firmware()
    fw.class_row(0, ["nan"])
    with pytest.raises(ConfigError, match=r"range row 0: .*has no nan"):
        compile_firmware(fw, HARDWARE)
    with pytest.raises(ConfigError, match="unknown class 'infinite'"):
        fw.class_row(0, ["infinite"])
    fw = Firmware()
    fw.class_row(0, ["zero"] * 5)
    with pytest.raises(ConfigError, match="5 sets of classes"):
        compile_firmware(fw, HARDWARE)


def test_the_builder_refuses_what_stands_in_the_wrong_place() -> None:
    fw = Firmware()
    with pytest.raises(ConfigError, match="inside a chain"):
        fw.add(0)
    with pytest.raises(ConfigError, match="inside a chain"), fw.chain(), fw.chain():
        pass
    with pytest.raises(ConfigError, match="inside another"), fw.program([0]), fw.program([1]):
        pass


def test_python_s_own_mistakes_are_explained_too() -> None:
    def one(write) -> str:
        fw = Firmware()
        with fw.chain():
            write(fw)
        with pytest.raises(ConfigError) as caught:
            compile_firmware(fw, HARDWARE)
        return str(caught.value)

    assert "(vv_add): a condition is ['last'], expected one of" in one(lambda fw: fw.add(0, ["last"]))
    assert "(vv_add): row '0'" in one(lambda fw: fw.add("0"))
    assert "(v_commit): size is [4]" in one(lambda fw: fw.commit([4]))
    assert "(v_reduce): unknown function" in one(lambda fw: fw.reduce_to(None))
    fw = Firmware()
    with pytest.raises(ConfigError, match="taps is 1, expected a list"), fw.program(1):
        pass
    fw.range_row("0", [0, 1, 2, 3, 4])
    fw.range_row(1, [0, 1, 2, 3, 4])
    with pytest.raises(ConfigError, match="range row '0'"):
        compile_firmware(fw, HARDWARE)
    with pytest.raises(ConfigError, match="lanes must be a power of two, not 7"):
        compile_firmware(Firmware(), replace(HARDWARE, lanes=7))


def test_an_image_has_room_for_255_rows() -> None:
    hardware = replace(HARDWARE, range_rows=256)
    rows = [RangeRow.of_boundaries([0, 1, 2, 3, 4])] * 256
    with pytest.raises(ConfigError, match="256 range rows, but one image carries 255"):
        compile_firmware(Firmware(), hardware, rows=rows)
    image = compile_firmware(Firmware(), hardware, rows=rows[1:])
    assert read_image(image.to_bytes(), hardware) == image


def test_programs_of_taps() -> None:
    hardware = replace(HARDWARE, taps=4)
    fw = Firmware()
    with fw.program(taps=[1, 2]):
        with fw.chain():
            fw.commit(1)
        with fw.chain():
            fw.mul(0)
            fw.cache(0)
    with fw.chain():
        fw.commit("N")
    image = compile_firmware(fw, hardware)
    assert image.taps == ((2, 1), (0, 2), (0, 2), (2, 1))
    assert [image.initiation_interval(tap) for tap in range(4)] == [
        1,
        hardware.multiply_latency,
        hardware.multiply_latency,
        1,
    ]
    assert read_image(image.to_bytes(), hardware) == image
    with fw.program(taps=[4]), fw.chain():
        fw.commit(1)
    with pytest.raises(ConfigError, match="tap 4"):
        compile_firmware(fw, hardware)


def test_errors_name_the_taps_where_programs_differ() -> None:
    fw = Firmware()
    with fw.program(taps=[0]), fw.chain():
        fw.commit(1)
    with fw.program(taps=[1]), fw.chain():
        fw.commit(3)
    with pytest.raises(ConfigError, match=r"taps 1: chain 1, instruction 1 \(v_commit\): size is 3"):
        compile_firmware(fw, replace(HARDWARE, taps=2))
    with fw.program(taps=[0]), fw.chain():
        fw.commit(1)
    with pytest.raises(ConfigError, match="tap 0 has two programs"):
        compile_firmware(fw, replace(HARDWARE, taps=2))


def test_a_tap_without_a_program_is_not_watched() -> None:
    fw = Firmware()
    with fw.program(taps=[1]), fw.chain():
        fw.commit(1)
    image = compile_firmware(fw, replace(HARDWARE, taps=3))
    assert image.taps == ((0, 0), (0, 1), (0, 0))


def test_sampling_and_controls() -> None:
    hardware = replace(HARDWARE, taps=2, controls=3)
    image = compile_firmware(Firmware(), hardware, sampling=[0, 65535], controls={2: 0xFFFFFFFF, 0: 7})
    assert read_image(image.to_bytes(), hardware) == image
    text = disassemble(image.to_bytes())
    assert "tap 1: every 65535" in text
    assert "control 0 = 7" in text
    for options, words in [
        ({"sampling": [1]}, "one for each of the 2 taps"),
        ({"sampling": [1, 65536]}, "65536"),
        ({"controls": {3: 0}}, "register 3"),
        ({"controls": {0: 1 << 32}}, "32 bits"),
        ({"controls": {0: -1}}, "32 bits"),
    ]:
        with pytest.raises(ConfigError, match=words):
            compile_firmware(Firmware(), hardware, **options)


def test_counts_that_a_word_cannot_hold_are_warned_of() -> None:
    counting = Firmware.from_chains([[op("vv_filter"), op("m_reduce", axis="M"), op("v_commit", size="M")]])
    assert compile_firmware(counting, HARDWARE).warnings == ()
    narrow = compile_firmware(counting, replace(HARDWARE, element=parse("fixed(2, 6)")))
    assert narrow.warnings == ("chain 1: counts above 1 saturate in 8-bit words; try accumulator_bits",)
    short = compile_firmware(counting, replace(HARDWARE, lanes=16, element=parse("e5m2")))
    assert "counts above 8 are rounded" in short.warnings[0]
    assert (
        compile_firmware(counting, replace(HARDWARE, element=parse("fixed(2, 6)"), accumulator_bits=16)).warnings == ()
    )


# --- bubbles

PASS, ADD, MUL = Chain(cache=True), Chain(alu=1, cache=True), Chain(alu=3, cache=True)


def intervals(chains, element="fixed(8, 8)"):
    made = with_bubbles(tuple(chains), replace(HARDWARE, element=parse(element)))
    return [chain.bubbles for chain in made]


def test_bubbles_of_loops_and_of_neighbours() -> None:
    assert intervals([ADD]) == [0]  # a sum in fixed point is there in the next cycle
    wait = HARDWARE.multiply_latency - 1
    assert wait >= 1
    assert intervals([MUL]) == [wait]
    float_hardware = replace(HARDWARE, element=parse("bfloat16"))
    assert intervals([ADD], "bfloat16") == [float_hardware.add_latency - 1]
    assert intervals([MUL], "bfloat16") == [float_hardware.multiply_latency - 1]
    assert intervals([Chain(alu=4, cache=True)], "bfloat16") == [0]  # max is no arithmetic
    assert intervals([Chain(alu=3, alu_row=1, cache=True)]) == [0]  # reads another row than it writes
    assert intervals([Chain(alu=3, alu_row=1, save=True), Chain(load=True)]) == [0, wait]
    assert intervals([Chain(commit=3)] * 4) == [0] * 4
    assert sum(intervals([MUL, *[Chain(commit=1)] * wait])) == 0  # filled with other work


def test_nobody_waits_for_what_is_overwritten() -> None:
    late, reader = Chain(alu=3, alu_row=1, cache=True), Chain(alu=1, commit=3)
    assert intervals([late, PASS, reader]) == [0, 0, 0]
    wait = HARDWARE.multiply_latency - 2
    assert intervals([late, replace(PASS, cache_conditions=1), reader]) == [0, 0, wait]  # perhaps not overwritten
    assert intervals([late, reader, PASS]) == [0, wait + 1, 0]
    assert intervals([Chain(alu=3, alu_row=1, save=True), Chain(save=True), Chain(load=True)]) == [0, 0, 0]


def brute_force(chains, hardware) -> int:
    """The fewest bubbles by trying all, with every vector's chains written out."""
    latency = {3: hardware.multiply_latency, 1: hardware.add_latency, 2: hardware.add_latency}

    def holds(bubbles) -> bool:
        events, clock = [], 0
        for _ in range(6):
            for chain, empty in zip(chains, bubbles, strict=True):
                clock += empty + 1
                events.append((clock, chain))
        for index, (now, chain) in enumerate(events):
            row = None if chain.alu in (0, 6) else chain.alu_row
            carried = chain.load
            for then, before in reversed(events[:index]):
                is_late = now < then + latency.get(before.alu, 1)
                if is_late and ((before.cache and before.cache_row == row) or (before.save and carried)):
                    return False
                if before.cache and before.cache_row == row and not before.cache_conditions:
                    row = None  # all that was written before is overwritten
                carried = carried and not before.save
        return True

    for total in range(16):
        for bubbles in itertools.product(range(total + 1), repeat=len(chains)):
            if sum(bubbles) == total and holds(bubbles):
                return total
    raise AssertionError


def test_the_fewest_bubbles_by_brute_force() -> None:
    import random

    rng = random.Random(0)
    seen = set()
    for _ in range(150):
        hardware = replace(HARDWARE, element=parse(rng.choice(["fixed(8, 8)", "bfloat16"])))
        chains = tuple(
            Chain(
                load=rng.random() < 0.3,
                alu=rng.choice([0, 1, 3, 3, 4, 6]),
                alu_row=rng.randrange(2),
                cache=rng.random() < 0.6,
                cache_row=rng.randrange(2),
                cache_conditions=rng.choice([0, 0, 1, 2]),
                save=rng.random() < 0.4,
            )
            for _ in range(rng.randrange(1, 4))
        )
        found = sum(chain.bubbles for chain in with_bubbles(chains, hardware))
        assert found == brute_force(chains, hardware), chains
        seen.add(found)
    assert len(seen) > 4


def test_the_largest_program_compiles() -> None:
    hardware = replace(HARDWARE, chains=256, element=parse("bfloat16"))
    fw = Firmware()
    for number in range(255):
        with fw.chain():
            fw.load()
            fw.mul(number % 4)
            fw.cache((number + 1) % 4)
            fw.save()
    image = compile_firmware(fw, hardware)
    assert image.initiation_interval() == 255 * hardware.multiply_latency
    assert read_image(image.to_bytes(), hardware) == image


# --- ranges as keys


@pytest.mark.parametrize("spelling", ["int8", "fixed(4, 4)", "e5m2", "float(4, 3)", "float(2, 1)"])
def test_storing_a_boundary_changes_no_comparison(spelling: str) -> None:
    """Every word against boundaries on, beside and beyond all words: by key as by value."""
    import numpy as np

    from oracles.words import keys
    from presilicon.instrument.firmware.ranges import boundary_key
    from presilicon.instrument.model.words import values_of

    hardware = replace(HARDWARE, element=parse(spelling))
    bits = hardware.word_bits
    words = np.arange(1 << bits) if hardware.is_float else np.arange(-(1 << bits - 1), 1 << bits - 1)
    values = values_of(hardware, words)
    number = np.isfinite(values)
    on = np.unique(values[number])
    between = (on[:-1] + on[1:]) / 2
    edges = [*on, *between, on[0] - 1, on[-1] + 1, *(on * (1 + 2**-30)), 1e300, -1e300]
    order = keys(hardware, words)
    for edge in edges:
        key = boundary_key(hardware, float(edge))
        np.testing.assert_array_equal((order > key)[number], (values > edge)[number])
    low, high = boundary_key(hardware, -np.inf), boundary_key(hardware, np.inf)
    assert ((low < order) & (order <= high))[number].all()
    if hardware.is_float:
        infinite = np.isinf(values)
        assert ((low < order) & (order <= high))[infinite].tolist() == [True, False]


def test_a_row_beside_the_firmware() -> None:
    fw = Firmware.from_chains([[op("vv_filter", addr=1), op("m_reduce", axis="N"), op("v_commit")]])
    image = compile_firmware(fw, HARDWARE, rows={1: RangeRow.of_boundaries([0, 1, 2, 3, "inf"])})
    assert [row.row for row in image.rows] == [1]
    assert compile_firmware(fw, HARDWARE, rows=[RangeRow.of_classes(["zero"])]).rows[0].keys == (16, 0, 0, 0, 0)
