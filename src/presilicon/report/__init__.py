"""Reports for people and programs: the table, document, page and figure of a comparison; costs; recorded runs."""

from presilicon.report.charts.figure import FIGURE_FORMATS, render_figure
from presilicon.report.charts.front import render_front
from presilicon.report.charts.lines import render_panels
from presilicon.report.charts.memory import render_memory, save_memory_plot
from presilicon.report.charts.roofline import save_roofline_plot
from presilicon.report.document import from_plain, to_json
from presilicon.report.execution import render_execution, render_execution_page
from presilicon.report.headline import headline
from presilicon.report.history import comparison_of, export_report, print_run, results_of, run_to_json
from presilicon.report.page.page import render_page
from presilicon.report.perfetto import save_trace, trace_document
from presilicon.report.reproduction import render_reproduction, render_story, reproduction_to_json
from presilicon.report.run_changes import changes_to_json, render_changes
from presilicon.report.run_table import RunQuery, print_rows, rows_to_json, select_rows
from presilicon.report.schedule import Payback, ScheduleView, render_summary
from presilicon.report.schedule_files import check_folder, save_schedule
from presilicon.report.sensitivity import render_sensitivity
from presilicon.report.step_document import Checkpointing, product_document, simulate_to_json, step_document
from presilicon.report.steps import (
    render_checkpointing,
    render_cost,
    render_coverage,
    render_product,
)
from presilicon.report.sweep import render_sweep, sweep_to_csv, sweep_to_json
from presilicon.report.table import print_table, render_table

__all__ = [
    "FIGURE_FORMATS",
    "Checkpointing",
    "Payback",
    "RunQuery",
    "ScheduleView",
    "changes_to_json",
    "check_folder",
    "comparison_of",
    "export_report",
    "from_plain",
    "headline",
    "print_rows",
    "print_run",
    "print_table",
    "product_document",
    "render_changes",
    "render_checkpointing",
    "render_cost",
    "render_coverage",
    "render_execution",
    "render_execution_page",
    "render_figure",
    "render_front",
    "render_memory",
    "render_page",
    "render_panels",
    "render_product",
    "render_reproduction",
    "render_sensitivity",
    "render_story",
    "render_summary",
    "render_sweep",
    "render_table",
    "reproduction_to_json",
    "results_of",
    "rows_to_json",
    "run_to_json",
    "save_memory_plot",
    "save_roofline_plot",
    "save_schedule",
    "save_trace",
    "select_rows",
    "simulate_to_json",
    "step_document",
    "sweep_to_csv",
    "sweep_to_json",
    "to_json",
    "trace_document",
]
