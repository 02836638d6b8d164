"""Which ops may leave the GPU, by thresholds learned from a table."""

from presilicon.designs import load_system
from presilicon.scheduling.candidates import judge


def test_thresholds_admit_what_the_table_says() -> None:
    system = load_system("v100-3xs10")
    paper, both = judge(system, "paper"), judge(system, "and")
    assert (paper.thresholds.bandwidth_gb_s, paper.thresholds.ipc) == (60.31, 5.549)
    assert (len(paper.admitted), len(paper.wrongly), len(paper.missed)) == (19, 13, 0)
    assert (len(both.admitted), len(both.wrongly), len(both.missed)) == (10, 4, 0)
    assert {kind for kind, _ in both.wrongly} == {"Mul", "Transpose"}
