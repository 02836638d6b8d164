"""Runs in ZigZag's environment (zigzag-dse, six): its best mappings of a network, and its prices of ours, as JSON.

python zigzag_peer.py best NETWORK MACHINE LPF_LIMIT     python zigzag_peer.py price RESULT ORDERS
"""

import json
import logging
import pickle
import sys
import tempfile
import time
from pathlib import Path

import zigzag
from zigzag.api import get_hardware_performance_zigzag
from zigzag.cost_model.cost_model import CostModelEvaluation
from zigzag.datatypes import LayerDim
from zigzag.mapping.temporal_mapping import TemporalMappingType
from zigzag.opt.loma.memory_allocator import (
    MemoryAllocator,
    MemoryHierarchyTooSmallException,
    MemoryTooSmallException,
)

INPUTS = Path(zigzag.__file__).parent / "inputs"


def best(network: str, machine: str, limit: int) -> None:
    """Search with ZigZag; the evaluations are kept beside the printed rows, so that `price` need not search again."""
    folder = tempfile.mkdtemp()
    start = time.perf_counter()
    found = get_hardware_performance_zigzag(
        str(INPUTS / "workload" / f"{network}.onnx"), str(INPUTS / "hardware" / f"{machine}.yaml"),
        str(INPUTS / "mapping" / f"{machine}.yaml"), opt="EDP", dump_folder=folder,
        pickle_filename=f"{folder}/all.pickle", lpf_limit=limit, loma_show_progress_bar=False,
    )  # fmt: skip
    seconds = time.perf_counter() - start
    evaluations = [evaluation for evaluation, _ in found[2][0][1]]
    rows = []
    for number, evaluation in enumerate(evaluations):
        layer = evaluation.layer
        spatial = {
            str(axis): {str(d): float(n) for d, n in part.items()} for axis, part in layer.spatial_mapping.items()
        }
        rows.append(
            {
                "layer": f"{number} {layer.name}",
                "dims": {str(dim): int(size) for dim, size in layer.layer_dim_sizes.items()},
                "windows": [str(relation) for relation in layer.dimension_relations],
                "spatial": spatial,
                "energy": evaluation.energy_total,
                "latency": evaluation.latency_total2,
                "bits": {str(operand): int(bits) for operand, bits in layer.operand_precision.data.items()},
                "order": [
                    [str(dim), int(count)]
                    for level in evaluation.temporal_mapping.mapping_dic_origin[layer.output_operand]
                    for dim, count in level
                ],
            }
        )
    path = f"{folder}/evaluations.pickle"
    with open(path, "wb") as file:
        pickle.dump(evaluations, file)
    machine_file = str(INPUTS / "hardware" / f"{machine}.yaml")
    print(json.dumps({"seconds": seconds, "evaluations": path, "machine": machine_file, "rows": rows}))


def price(result: str, orders: str) -> None:
    """ZigZag's energy and latency of other orders of loops, with its own allocation to memories."""
    with open(json.loads(Path(result).read_text())["evaluations"], "rb") as file:
        evaluations = pickle.load(file)
    wanted = json.loads(Path(orders).read_text())
    priced = []
    for evaluation, candidates in zip(evaluations, wanted, strict=True):
        rows = []
        for order in candidates:
            loops = [(LayerDim(dim), count) for dim, count in order]
            arguments = evaluation.accelerator, evaluation.layer, evaluation.spatial_mapping, loops
            try:
                mapping = MemoryAllocator(*arguments, TemporalMappingType.UNEVEN).run()
            except (MemoryHierarchyTooSmallException, MemoryTooSmallException):
                rows.append(None)
                continue
            found = CostModelEvaluation(
                accelerator=evaluation.accelerator, layer=evaluation.layer, spatial_mapping=evaluation.spatial_mapping,
                spatial_mapping_int=evaluation.spatial_mapping_int, temporal_mapping=mapping,
            )  # fmt: skip
            rows.append([found.energy_total, found.latency_total2])
        priced.append(rows)
    print(json.dumps(priced))


if __name__ == "__main__":
    logging.disable(logging.CRITICAL)
    if sys.argv[1] == "best":
        best(sys.argv[2], sys.argv[3], int(sys.argv[4]))
    else:
        price(sys.argv[2], sys.argv[3])
