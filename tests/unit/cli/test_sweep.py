"""`presilicon sweep`: its table, files, errors and exit codes."""

import csv
import io

import presilicon as ps

STUDY = """
designs = "edge-bf16"
workloads = "digits-mlp"
subject_to = "area_mm2 <= 12"
[vary]
machine.rows = [8, 16, 32]
numerics = ["bf16", "fp32"]
"""


def write(path, text=STUDY):
    path.write_text(text)
    return str(path)


def test_the_table_marks_the_front_and_has_units_in_its_head(invoke, tmp_path):
    done = invoke("sweep", write(tmp_path / "small.toml"))
    assert done.code == 0
    head, *rows = done.out.split("\n\n")[0].splitlines()
    assert " ".join(head.split()) == (
        "point rows numerics time/step (us) energy/step (uJ) area (mm2) power (W) memory (KiB)"
    )
    assert len(rows) == 6
    assert {"*", "x"} <= {row[0] for row in rows} <= {"*", "x", " "}
    times = [float(row[1:].split()[3]) for row in rows]
    assert times == sorted(times)
    assert "x breaks a limit (area_mm2 <= 12)" in done.out
    assert "simulate: 6/6 done, 0 running, 0 failed" in done.err


def test_the_directory_has_a_table_that_spreadsheets_take_and_a_picture(invoke, tmp_path):
    done = invoke("sweep", write(tmp_path / "small.toml"))
    (folder,) = (tmp_path / "runs").iterdir()
    rows = list(csv.DictReader(io.StringIO((folder / "table.csv").read_text())))
    assert [row["point"] for row in rows] == ["1", "2", "3", "4", "5", "6"]
    assert rows[0]["machine.rows"] == "8"
    assert float(rows[0]["time_per_step_s"]) > 0
    assert (folder / "front.png").read_bytes().startswith(b"\x89PNG")
    assert str(folder.name) in done.out
    listed = invoke("runs", "list", "--name", "small").out
    assert folder.name in listed
    assert "digits-mlp" in listed
    as_json = invoke("sweep", str(tmp_path / "small.toml"), "--json")
    assert "had finished already" in as_json.err
    assert [point["front"] for point in as_json.document["points"]] == [row["front"] == "True" for row in rows]


def test_a_study_that_python_carried_out_gets_its_table(invoke, tmp_path):
    result = ps.sweep(write(tmp_path / "small.toml"), out=tmp_path / "runs", jobs=1)
    done = invoke("sweep", str(tmp_path / "small.toml"))
    assert done.code == 0
    assert "had finished already" in done.err
    assert (result.path / "table.csv").read_text().count("\n") == 1 + len(result.records)


def test_a_named_run_is_continued_and_others_are_refused(invoke, tmp_path):
    write(tmp_path / "small.toml")
    assert invoke("sweep", "small.toml").code == 0
    assert invoke("sweep", "--resume", "latest").code == 0
    assert invoke("sweep").code == 2
    assert invoke("sweep", "small.toml", "--resume", "latest").code == 2
    listed = invoke("runs", "list")
    assert listed.code == 0
    assert "-sweep" in listed.out


def test_mistakes_are_one_line_and_exit_with_2(invoke, tmp_path):
    for text, message in [
        (STUDY.replace("rows", "rosw"), 'did you mean "rows"'),
        (STUDY.replace("area_mm2 <= 12", "area_mm2 <= 1"), 'no point can meet "area_mm2 <= 1"'),
        (STUDY + "[serch]\n", 'unknown key "serch": did you mean "search"'),
        (STUDY + "[search]\npoints = 3\n", "a grid has all points"),
        ("designs = 3", "designs"),
        ("", "the file is empty"),
    ]:
        done = invoke("sweep", write(tmp_path / "bad.toml", text))
        assert done.code == 2
        assert done.out == ""
        assert message in done.err
        assert done.err.count("\n") == 1
    assert invoke("sweep", "nowhere.toml").code == 2
    assert invoke("sweep", write(tmp_path / "small.toml"), "--sensitivity").code == 2
    assert not (tmp_path / "runs").exists()


def test_a_choice_prints_the_evidence_and_what_would_change_it(invoke, tmp_path):
    text = STUDY + "[train]\nseeds = 1\nmax_steps = 60\ntarget = 0.7\n[choose]\nbest = 1\nfew_steps = 30\n"
    done = invoke("sweep", write(tmp_path / "choose.toml", text), "--jobs", "1", "--sensitivity")
    assert done.code == 0
    assert "recommended: edge-bf16[rows=" in done.out
    assert "edge-bf16 (reference) takes" in done.out
    assert "what would change the answer:" in done.out
    assert "without area_mm2 <= 12: point" in done.out
    assert "breaks area_mm2 <= 12" in done.out
    (file,) = (tmp_path / "runs").glob("*/recommended.toml")
    assert invoke("design", "validate", str(file)).code == 0
