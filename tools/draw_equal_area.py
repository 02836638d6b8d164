"""Draws docs/pictures/formats-at-equal-area.png from the table of the reproduction.

presilicon reproduce formats-at-equal-area --json > table.json
python tools/draw_equal_area.py table.json docs/pictures/formats-at-equal-area.png
"""

import json
import sys
from pathlib import Path

from matplotlib.figure import Figure

COLOURS = {"time": "#0072b2", "energy": "#d55e00"}


def main() -> None:
    """Dots with intervals: a line for each format, a column for each workload."""
    rows = json.loads(Path(sys.argv[1]).read_text())["rows"]
    ratios: dict[str, dict[tuple[str, str], tuple[float, float, float]]] = {}
    for row in rows:
        workload, rest = row["quantity"].split(", ", 1)
        name, quantity = rest.rsplit(": ", 1)
        by_case = ratios.setdefault(name, {})
        if row["ours"] is not None:
            low, high = (float(end) for end in row["note"].split(";")[0].split(" to "))
            by_case[workload, quantity] = (row["ours"], low, high)
    workloads = list(dict.fromkeys(row["quantity"].split(", ", 1)[0] for row in rows))
    last = workloads[-1]
    names = sorted(ratios, key=lambda name: -ratios[name].get((last, "time"), (99.0,))[0])
    figure = Figure(figsize=(9.0, 6.2), layout="constrained")
    for axes, workload in zip(figure.subplots(1, len(workloads), sharey=True), workloads, strict=True):
        for quantity, colour in COLOURS.items():
            for place, name in enumerate(names):
                if (workload, quantity) not in ratios[name]:
                    continue
                median, low, high = ratios[name][workload, quantity]
                height = place + (0.16 if quantity == "time" else -0.16)
                axes.plot([low, high], [height, height], color=colour, linewidth=1.2, alpha=0.55)
                axes.plot([median], [height], "o", color=colour, markersize=5, label=quantity if place == 0 else None)
        axes.axvline(1.0, color="#1b1c1e", linewidth=0.8)
        axes.set_xscale("log")
        axes.set_xticks([0.25, 0.5, 1, 2], ["1/4", "1/2", "1", "2"])
        axes.minorticks_off()
        axes.set_yticks(range(len(names)), names)
        axes.set_title(workload)
        axes.set_xlabel("of fp32, at its area")
        axes.grid(axis="x", color="#dcdcd8", linewidth=0.6)
        for side in ("top", "right", "left"):
            axes.spines[side].set_visible(False)
    for quantity, colour in COLOURS.items():
        axes.plot([], [], "o-", color=colour, label=f"{quantity}-to-accuracy")
    handles, labels = axes.get_legend_handles_labels()
    chosen = [(handle, label) for handle, label in zip(handles, labels, strict=True) if label.endswith("accuracy")]
    axes.legend(*zip(*chosen, strict=True), loc="lower left", frameon=False, fontsize=9)
    figure.savefig(sys.argv[2], dpi=110)


if __name__ == "__main__":
    main()
