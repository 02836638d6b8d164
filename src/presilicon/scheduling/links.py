"""How busy the links to the host would be: schedules let moves pass one another, and a link has an end."""

from msgspec import Struct

from presilicon.records import Problem, Schedule


class LinkLoad(Struct, frozen=True, kw_only=True):
    """What crosses the links of one pool in a step."""

    device: str
    bytes: int
    share: float
    """Of what its links can carry in the makespan; above 1, the schedule asks for more than there is."""


def link_loads(problem: Problem, schedule: Schedule) -> tuple[LinkLoad, ...]:
    """Bytes over each pool's links: a result crosses once to every other pool that needs it."""
    moved = dict.fromkeys(problem.pool, 0)
    for task, each in zip(problem.tasks, schedule.started, strict=True):
        targets = {schedule.started[follower].mode.device for follower in problem.followers[task.id]}
        for target in targets - {each.mode.device}:
            moved[each.mode.device] += task.bytes_out
            moved[target] += task.bytes_out
    span = schedule.makespan_s
    found = []
    for pool in problem.pools:
        if pool.bytes_per_s is None:
            continue
        carried = pool.bytes_per_s * pool.units * span
        found.append(
            LinkLoad(device=pool.name, bytes=moved[pool.name], share=moved[pool.name] / carried if carried else 0.0)
        )
    return tuple(found)


def warnings(problem: Problem, schedule: Schedule) -> tuple[str, ...]:
    """A sentence for each link that could not carry what a schedule moves."""
    return tuple(
        f"moves over the link of {load.device} add up to {load.bytes / 1e9:.3g} GB, {load.share:.0%} of what it "
        "carries in the step: moves do not wait for one another here, and on real links they would"
        for load in link_loads(problem, schedule)
        if load.share > 1
    )
