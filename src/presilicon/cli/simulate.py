"""`presilicon simulate`: what one training step costs on a design."""

import click

from presilicon.cli.options import json_option, set_option, workload_option


@click.command("simulate")
@click.argument("design")
@workload_option
@click.option("--batch", type=click.IntRange(min=1), help="Batch size, in place of the workload's own.")
@click.option("--ops", type=click.IntRange(min=0), default=12, show_default=True, help="How many ops to list.")
@set_option
@json_option
def command(design: str, workload: str, batch: int | None, ops: int, settings: tuple[str, ...], as_json: bool) -> None:
    """Price one training step of a workload on DESIGN: time, energy and memory, by op.

    \b
    Example:
      presilicon simulate bf16-systolic --workload digits-cnn --batch 256
    """
    from presilicon.designs import load_design
    from presilicon.workloads import load_workload

    loaded, chosen = load_design(design, settings), load_workload(workload)

    from presilicon.report import cost_to_json, print_cost
    from presilicon.simulation import simulate
    from presilicon.workloads.capture import capture_workload

    graph = capture_workload(chosen, batch_size=batch)
    cost = simulate(graph, loaded)
    if as_json:
        click.echo(cost_to_json(cost, design=loaded.name, graph=graph), nl=False)
    else:
        print_cost(cost, design=loaded.name, graph=graph, ops=ops)
