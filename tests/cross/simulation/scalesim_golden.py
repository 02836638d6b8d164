"""Cycle counts of the real SCALE-Sim for products and convolutions: writes `scalesim_golden.csv` beside this file.

SCALE-Sim has requirements of its own, so it lives in an environment of its own (3.0.0 fails under
numpy 2.4, which no longer turns arrays of one element into numbers):

    python -m venv build/scalesim
    build/scalesim/bin/pip install scalesim==3.0.0 numpy==2.2.6
    build/scalesim/bin/python tests/cross/simulation/scalesim_golden.py
"""

import contextlib
import csv
import io
import tempfile
from importlib.metadata import version
from pathlib import Path

GOLDEN = Path(__file__).with_name("scalesim_golden.csv")
COLUMNS = ["kind", "layer", "shape", "rows", "cols", "dataflow", "cycles"]

ARRAYS = [(8, 8), (4, 16), (16, 4), (32, 32), (1, 5), (128, 128)]
DATAFLOWS = {"ws": "weight-stationary", "is": "input-stationary", "os": "output-stationary"}

# M, K, N
GEMMS = {
    "one": (1, 1, 1),
    "row": (1, 64, 10),
    "column": (64, 10, 1),
    "exact": (32, 32, 32),
    "ragged": (33, 31, 65),
    "tall": (200, 16, 8),
    "deep": (8, 300, 9),
    "wide": (5, 12, 150),
    "mlp_forward": (32, 64, 48),
    "mlp_input_grad": (32, 48, 64),
    "mlp_weight_grad": (64, 32, 48),
}
# Input height and width, kernel height and width, channels, filters, stride; batch 1, no padding.
CONVOLUTIONS = {
    "pointwise": (7, 7, 1, 1, 16, 24, 1),
    "three": (10, 10, 3, 3, 3, 8, 1),
    "strided": (15, 15, 3, 3, 4, 10, 2),
    "strided_left_over": (16, 16, 3, 3, 4, 10, 2),
    "oblong": (9, 14, 3, 2, 2, 5, 1),
    "five": (12, 12, 5, 5, 2, 7, 3),
    "whole": (6, 6, 6, 6, 3, 12, 1),
}

CONFIGURATION = """
[general]
run_name = run
[architecture_presets]
ArrayHeight = {rows}
ArrayWidth = {cols}
IfmapSramSzkB = 1024
FilterSramSzkB = 1024
OfmapSramSzkB = 1024
IfmapOffset = 0
FilterOffset = 10000000
OfmapOffset = 20000000
Bandwidth = 10
Dataflow = {dataflow}
ReadRequestBuffer = 32
WriteRequestBuffer = 32
[layout]
IfmapCustomLayout = False
IfmapSRAMBankBandwidth = 10
IfmapSRAMBankNum = 10
IfmapSRAMBankPort = 2
FilterCustomLayout = False
FilterSRAMBankBandwidth = 10
FilterSRAMBankNum = 10
FilterSRAMBankPort = 2
[sparsity]
SparsitySupport = false
[run_presets]
InterfaceBandwidth = CALC
UseRamulatorTrace = False
"""


def main() -> None:
    rows: list[list[object]] = []
    for height, width in ARRAYS:
        for short, dataflow in DATAFLOWS.items():
            gemms = {name: (m, n, k) for name, (m, k, n) in GEMMS.items()}  # its columns are M, N, K
            counted = run(gemms, height, width, short, is_gemm=True)
            for (name, shape), cycles in zip(GEMMS.items(), counted, strict=True):
                rows.append(["gemm", name, "x".join(map(str, shape)), height, width, dataflow, cycles])
            counted = run(CONVOLUTIONS, height, width, short, is_gemm=False)
            for (name, shape), cycles in zip(CONVOLUTIONS.items(), counted, strict=True):
                rows.append(["convolution", name, "x".join(map(str, shape)), height, width, dataflow, cycles])
    with GOLDEN.open("w", newline="") as file:
        file.write(f"# scalesim {version('scalesim')}, made by tests/cross/simulation/scalesim_golden.py\n")
        writer = csv.writer(file, lineterminator="\n")
        writer.writerows([COLUMNS, *rows])


def run(layers: dict[str, tuple[int, ...]], rows: int, cols: int, dataflow: str, *, is_gemm: bool) -> list[int]:
    """Compute cycles of each layer, from SCALE-Sim's own report."""
    from scalesim.scale_sim import scalesim

    with tempfile.TemporaryDirectory() as folder:
        place = Path(folder)
        (place / "run.cfg").write_text(CONFIGURATION.format(rows=rows, cols=cols, dataflow=dataflow))
        lines = ["Layer," + "size," * 7] + [f"{name}," + "".join(f"{x}," for x in s) for name, s in layers.items()]
        (place / "topology.csv").write_text("\n".join(lines) + "\n")
        # Layouts are read even where none is used.
        (place / "layout.csv").write_text("\n".join(["Layer,"] + [f"{name}," + "1," * 20 for name in layers]) + "\n")
        with contextlib.redirect_stdout(io.StringIO()):
            simulator = scalesim(
                save_disk_space=True,
                verbose=False,
                config=str(place / "run.cfg"),
                topology=str(place / "topology.csv"),
                layout=str(place / "layout.csv"),
                input_type_gemm=is_gemm,
            )
            simulator.run_scale(top_path=str(place))
        with (place / "run" / "COMPUTE_REPORT.csv").open() as file:
            report = [{key.strip(): value for key, value in line.items() if key} for line in csv.DictReader(file)]
    assert all(float(line["Stall Cycles"]) == 0 for line in report)
    return [int(float(line["Total Cycles"])) for line in report]


if __name__ == "__main__":
    main()
