"""The picture of a study."""

import presilicon as ps
from presilicon.report import render_front


def test_a_study_in_which_nothing_trains_has_a_picture(tmp_path) -> None:
    study = {
        "designs": "edge-bf16", "workloads": "digits-mlp", "vary": {"batch": [5000, 6000]},
        "train": {"seeds": 1, "max_steps": 60},
    }  # fmt: skip
    result = ps.sweep(study, out=tmp_path, jobs=1)
    assert all("training split has only" in record.error for record in result.records)
    assert render_front(result, "png").startswith(b"\x89PNG")
