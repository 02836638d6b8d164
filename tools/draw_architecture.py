"""Draw the picture of docs/architecture.md: python tools/draw_architecture.py docs/pictures/architecture.svg"""

import sys

import matplotlib as mpl
from matplotlib import pyplot as plt
from matplotlib.patches import FancyArrowPatch, FancyBboxPatch

INK, SOFT = "#1f2933", "#5f6c7b"
DATA, ENGINE, JOIN, SHOW = "#e8eef7", "#dcefe3", "#fbe9d0", "#efe6f5"

BOXES = {
    # name: (x, y, width, height, colour, title, text)
    "workloads": (0.2, 5.3, 2.7, 1.1, DATA, "workloads", "model, data, target;\ncapture of a step"),
    "designs": (0.2, 3.0, 2.7, 1.35, DATA, "designs", "machine, numerics,\ninstrument: one TOML file"),
    "formats": (0.2, 0.7, 2.7, 1.35, DATA, "formats, ops", "number formats, MAC units,\noperators, user arithmetic"),
    "emulation": (4.9, 5.3, 2.7, 1.1, ENGINE, "emulation", "trains with the numerics\nof a design"),
    "simulation": (4.9, 3.75, 2.7, 1.1, ENGINE, "simulation", "prices a step on a\nmachine kind"),
    "scheduling": (4.9, 2.2, 2.7, 1.1, ENGINE, "scheduling", "places a step on\nseveral devices"),
    "instrument": (4.9, 0.65, 2.7, 1.1, ENGINE, "instrument, rtl", "taps, firmware, stream;\nSystemVerilog"),
    "study": (9.3, 2.6, 2.5, 2.0, JOIN, "study", "joins the engines:\nsteps to accuracy x\ncost of each step"),
    "cli": (12.9, 5.3, 2.5, 1.1, SHOW, "cli, Python", "the same calls"),
    "runs": (12.9, 3.05, 2.5, 1.1, SHOW, "runs", "records, events,\ncheckpoints, locks"),
    "report": (12.9, 0.8, 2.5, 1.1, SHOW, "report", "tables, pages,\nfigures"),
}
ARROWS = [
    ("workloads", "right", "emulation", "left", "", None),
    ("workloads", "right", "simulation", "left", "StepGraph", (3.9, 5.05)),
    ("designs", "right", "emulation", "left", "", None),
    ("designs", "right", "simulation", "left", "", None),
    ("designs", "right", "scheduling", "left", "", None),
    ("designs", "right", "instrument", "left", "", None),
    ("formats", "top", "designs", "bottom", "", None),
    ("emulation", "right", "study", "left", "Trace: facts\nof each step", (8.5, 5.2)),
    ("simulation", "right", "study", "left", "Cost", (8.35, 4.12)),
    ("scheduling", "right", "study", "left", "Schedule", (8.4, 3.08)),
    ("instrument", "right", "study", "left", "readings", (8.5, 2.0)),
    ("cli", "left", "study", "top", "typed requests", (11.5, 5.55)),
    ("study", "right", "runs", "left", "events,\nResult", (12.35, 3.98)),
    ("runs", "bottom", "report", "top", "", None),
]


def anchor(name: str, side: str) -> tuple[float, float]:
    x, y, width, height, *_ = BOXES[name]
    return {
        "left": (x, y + height / 2),
        "right": (x + width, y + height / 2),
        "top": (x + width / 2, y + height),
        "bottom": (x + width / 2, y),
    }[side]


def main(path: str) -> None:
    mpl.rcParams.update({"font.family": "DejaVu Sans", "svg.hashsalt": "presilicon"})
    figure, axes = plt.subplots(figsize=(15.6, 6.6))
    axes.set(xlim=(0, 15.6), ylim=(0.4, 6.6))
    axes.axis("off")
    for start, leaves, end, enters, label, position in ARROWS:
        arrow = FancyArrowPatch(anchor(start, leaves), anchor(end, enters), arrowstyle="-|>", mutation_scale=14,
                                color=SOFT, linewidth=1.2, shrinkA=3, shrinkB=3)  # fmt: skip
        axes.add_patch(arrow)
        if position:
            axes.text(*position, label, ha="center", va="center", fontsize=10, color=INK,
                      bbox={"facecolor": "white", "edgecolor": "none", "pad": 1.5})  # fmt: skip
    for x, y, width, height, colour, title, text in BOXES.values():
        axes.add_patch(FancyBboxPatch((x, y), width, height, boxstyle="round,pad=0.02,rounding_size=0.12",
                                      facecolor=colour, edgecolor=SOFT, linewidth=1))  # fmt: skip
        middle = x + width / 2
        axes.text(middle, y + height - 0.13, title, ha="center", va="top", fontsize=12, color=INK, weight="bold")
        axes.text(middle, y + 0.13, text, ha="center", va="bottom", fontsize=10, color=SOFT)
    figure.savefig(path, bbox_inches="tight", metadata={"Date": None} if path.endswith("svg") else None, dpi=110)


if __name__ == "__main__":
    main(sys.argv[1])
