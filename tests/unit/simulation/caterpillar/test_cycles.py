"""CATERPILLAR's schedules: staleness and length of the pipeline, and cores for its layers."""

import pytest
from msgspec.structs import replace

from presilicon.base import ConfigError
from presilicon.designs import UpdateRule, load_design
from presilicon.simulation import simulate
from presilicon.simulation.caterpillar.cycles import all_gather_cycles, core_gemm_cycles, core_gemv_cycles
from presilicon.simulation.caterpillar.pipeline import CaterpillarPipeline, allot_cores


def run_pipeline(layers: int, samples: int) -> tuple[list[set[int]], int]:
    """Messages between layers, slot by slot: the ages of weights that each layer saw, and the slots it took."""
    version, saw = [0] * layers, [{} for _ in range(layers)]
    ages: list[set[int]] = [set() for _ in range(layers)]
    forward: list[list[int]] = [[] for _ in range(layers + 1)]
    backward: list[list[int]] = [[] for _ in range(layers + 1)]
    slot, waiting = 0, list(range(samples))
    while any(len(have) < samples for have in saw) or any(backward) or any(forward):
        arriving_forward, arriving_backward = forward, backward
        forward, backward = [[] for _ in range(layers + 1)], [[] for _ in range(layers + 1)]
        if waiting:
            arriving_forward[0].append(waiting.pop(0))
        for layer in range(layers):
            for sample in arriving_forward[layer]:
                saw[layer][sample] = version[layer]
                if layer == layers - 1:
                    arriving_backward[layer].append(sample)  # its loss is known at once
                else:
                    forward[layer + 1].append(sample)
            for sample in arriving_backward[layer]:
                ages[layer].add(version[layer] - saw[layer][sample])
                version[layer] += 1
                if layer:
                    backward[layer - 1].append(sample)
        slot += 1
    return ages, slot


@pytest.mark.parametrize("layers", range(1, 8))
def test_staleness_is_what_messages_between_layers_give(layers: int) -> None:
    samples = 40
    ages, slots = run_pipeline(layers, samples)
    staleness = UpdateRule(per_sample=True, pipelined=True).staleness(layers)
    assert tuple(max(seen) for seen in ages) == staleness
    assert staleness == tuple(2 * (layers - number) for number in range(1, layers + 1))
    # While the pipeline fills, weights are younger: the first sample sees none that are old.
    assert all(min(seen) == 0 for seen in ages)
    pipeline = CaterpillarPipeline(layers=("a",) * layers, cores=(1,) * layers, slot_cycles=1, stage_of={})
    assert slots == samples + pipeline.fill_slots


def test_stages_of_a_graph(linear_step) -> None:
    graph = linear_step()
    assert graph.weighted_layers == ("fc",)
    assert UpdateRule(per_sample=True, pipelined=True).delays(graph) == {"fc": 0}
    without = replace(graph, ops=tuple(op for op in graph.ops if op.phase == "update"))
    with pytest.raises(ConfigError, match="no layer with weights"):
        simulate(without, load_design("caterpillar-small", ["machine.schedule=pipelined"]))


def test_cores_go_to_the_slowest_layer() -> None:
    work = [100, 10, 40]
    allotted, slowest = allot_cores(8, "abc", lambda stage, cores: work[stage] // cores)
    assert (allotted, slowest) == ((5, 1, 2), 20)
    # A layer that two cores make no faster, but three do; and one that no number does.
    assert allot_cores(4, "ab", lambda stage, cores: 5 if stage else {1: 9, 2: 9, 3: 4}[cores]) == ((3, 1), 5)
    assert allot_cores(4, "ab", lambda stage, cores: 7)[1] == 7
    with pytest.raises(ConfigError, match=r"3 layers.*machine\.cores is 2"):
        allot_cores(2, "abc", lambda stage, cores: 1)


def test_a_core_by_hand() -> None:
    # 4 tiles of 100 rank-1 updates; a read before, four stages and a write after.
    assert core_gemm_cycles(8, 100, 8, nr=4, stages=4) == 4 * 100 + 1 + 4 + 1
    # 2 turns of 100 products and an addition, and the last PE of a row starts 3 cycles later.
    assert core_gemv_cycles(8, 400, nr=4, stages=4) == 2 * 101 + 3 + 1 + 4 + 1
    # 2 (n - 1) steps of a quarter of the words.
    assert 2 * all_gather_cycles(64, 4, ring_words=4, hop_cycles=2) == 6 * (16 // 4 + 2)


@pytest.mark.parametrize("nr", [2, 4, 8])
def test_a_matrix_and_a_vector_use_the_core_less_than_two_matrices(nr: int) -> None:
    for side in (16, 64, 256):
        gemm = side**3 / (core_gemm_cycles(side, side, side, nr, 4) * nr**2)
        gemv = side**2 / (core_gemv_cycles(side, side, nr, 4) * nr**2)
        assert gemv < gemm <= 1


@pytest.mark.parametrize(
    ("setting", "words"),
    [
        ("machine.nr=0", ["$.machine.nr", "given 0", ">= 1"]),
        ("machine.cores=0", ["$.machine.cores", ">= 1"]),
        ("machine.mem_a_kib=0", ["$.machine.mem_a_kib"]),
        ("machine.schedule=batch", ["$.machine.schedule", "minibatch"]),
        ("machine.rows=4", ["$.machine.rows", "unknown key"]),
        ("machine.technology=nowhere", ["unknown technology"]),
        ("machine.dram_kind=hbm9", ["hbm9", "ddr3"]),
        ("machine.kind=catterpillar", ['did you mean "caterpillar"']),
    ],
)
def test_wrong_machines_are_explained(setting: str, words: list[str]) -> None:
    with pytest.raises(ConfigError) as caught:
        load_design("caterpillar-small", [setting])
    for word in words:
        assert word in str(caught.value)
