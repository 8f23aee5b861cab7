"""`python -m bench own_text`: what its table says of made runs."""

import json
from argparse import Namespace

import pytest
from scipy.stats import spearmanr

from bench.__main__ import main
from common.errors import BadInput, ProjectError
from papers import own_text
from training.methods import load_method


def made(method, corpus, pseudo, real, verdict, seed=0):
    gains = {name: {"start": start, "result": result, "interval": [result - start - 1, result - start + 1],
                    "verdict": verdict} for name, (start, result) in (("pseudo", pseudo), ("real", real))}  # fmt: skip
    name = f"mini_{method}_{corpus}_seed-{seed}"
    return {"name": name, "start": "mini", "method": method, "set": corpus, "seed": seed, **gains, "start_share": 0.0,
            "curve": [[0, 1.0], [30, 2.0]], "facts": {}}  # fmt: skip


ROWS = [
    made("spans", "med", (30, 40), (41, 58), "better"),
    made("spans", "npl", (20, 20.5), (22, 21), "not told apart"),
    made("simcse", "med", (30, 34.5), (41, 40.5), "better"),
    made("simcse", "npl", (20, 20.2), (22, 23), "not told apart"),
]


def arguments(folder, **changed):
    flags = {"models": ["mini"], "names": None, "methods": ["spans"], "sets": ["med"], "seeds": [0], "known": None,
             "folder": str(folder), "collect": False, "figure": None, "steps": 4, "float32": False,
             "data_dir": "d", "stage_1": False, "output_init": "checkpoint"}  # fmt: skip
    return Namespace(**flags | changed)


def finish(runs, **trajectory):
    """Write a finished run of `arguments`; returns its scores."""
    folder = runs / "mini_spans_med_seed-0"
    folder.mkdir()
    score = {"start": 1.0, "result": 2.0, "interval": [0.5, 1.5], "verdict": "better"}
    verdict = score | {"labels": score, "start_share": 0.5, "dev_by_start_share": {"1.0": 1.0, "0.5": 2.0}}
    (folder / "adapt.json").write_text(json.dumps(verdict))
    record = {"format": 1, "status": "finished", "trajectory": {"start": "s"} | trajectory}
    (folder / "run.json").write_text(json.dumps(record))
    (folder / "log.jsonl").write_text('{"step": 30, "loss": 1}\n{"step": 30, "eval_search_ndcg": 2.0}\n')
    return score


def test_gains_verdicts_and_agreement():
    table = own_text.table(ROWS)
    assert "| mini  | as it is | 41.00 | 22.00 |" in table
    assert "| +8.00     |" in table and "| +0.25     |" in table  # means of +17 and -1, of -0.5 and +1
    lines = own_text.verdicts(ROWS)
    assert [line[-1] for line in lines[1:]] == ["1 of 1", "0 of 1"] * 2
    assert lines[1][3:5] == ["+10.00 (+9.00 to +11.00)", "+17.00 (+16.00 to +18.00)"]
    small = made("spans", "cisi", (60, 66), (42, 41), "better")  # at least 5 points, less than a tenth of 60
    assert own_text.verdicts([small])[1][-1] == "0 of 1"
    said = own_text.shipped(ROWS)
    assert "shipped 2 of 4 times" in said and "judged queries is -0.50" in said


def test_a_set_with_more_seeds_weighs_no_more_in_the_mean_gain():
    later = made("spans", "med", (30, 45), (41, 60), "better", seed=1)
    line = next(line for line in own_text.table([*ROWS, later]).splitlines() if "| spans " in line)
    assert [cell.strip() for cell in line.split("|")][3:8] == ["59.00 ± 1.41", "21.00", "40.00", "+8.50", "1 to 2"]


def test_the_gain_of_several_seeds_has_the_outer_ends_of_their_intervals():
    seeds = [made("spans", "med", (30, 40), (41, real), "better", seed) for seed, real in enumerate((58, 43.5, 39.5))]
    [_, line] = own_text.verdicts(seeds)
    assert line[4] == "+6.00 (-2.50 to +18.00)" and line[5:] == ["2 of 3", "1 of 3", "0.0 0.0 0.0", "3 of 3"]


@pytest.mark.parametrize("names", [["one"], ["one", "one"], None])
def test_every_start_has_a_name_of_its_own(names):
    with pytest.raises(BadInput, match="give each of --models its own name"):
        own_text.rows(Namespace(models=["a/best", "b/best"], names=names))


def test_the_order_of_candidates_is_compared_over_all_starts_of_a_split():
    other = made("spans", "med", (50, 35), (60, 61), "better") | {"start": "minilm"}
    later = made("spans", "med", (30, 45), (41, 59), "better", seed=1)
    lines = own_text.orders([*ROWS, other, later])
    med = spearmanr([30, 50, 40, 32, 35], [41, 60, 58, 40.5, 61]).statistic
    npl = spearmanr([20, 20.5, 20.2], [22, 21, 23]).statistic
    assert lines[1:3] == [["med", "5", f"{med:.2f}"], ["npl", "3", f"{npl:.2f}"]]
    assert lines[3] == ["mean", "", f"{(med + npl) / 2:.2f}"], "a split with two candidates orders nothing"
    assert own_text.orders([later])[-1][-1].startswith("not measured")


@pytest.mark.parametrize(
    ("code", "error"), [(2, "no finished run; every one was refused"), (4, "failed with exit code 4")]
)
def test_a_start_that_a_method_refuses_is_left_out_and_a_failure_stops(monkeypatch, tmp_path, code, error):
    commands = []
    monkeypatch.setattr(own_text, "run_to_its_end", lambda command, stdout: commands.append(command) or code)
    monkeypatch.setattr(own_text, "refuse_missing", lambda *_: None)  # no data here
    with pytest.raises(ProjectError, match=error):
        own_text.rows(arguments(tmp_path, methods=["spans, words"]))
    assert not [word for word in commands[0] if "use_cpu" in word], "configs/adapt.yaml uses a GPU if there is one"


@pytest.mark.parametrize(("trained", "here", "added"), [("cpu", "cuda", ["--use_cpu=true"]), ("cuda", "cuda", []),
                                                        ("cpu", "cpu", []), ("cuda", "cpu", None)])  # fmt: skip
def test_a_run_that_finished_on_another_device_is_kept(monkeypatch, tmp_path, trained, here, added):
    """`adapt` itself refuses to continue on another device; None: it is not called."""
    commands = []
    monkeypatch.setattr(own_text, "run_to_its_end", lambda command, stdout: commands.append(command) or 0)
    monkeypatch.setattr(own_text, "refuse_missing", lambda *_: None)  # no data here
    monkeypatch.setattr(own_text, "device_here", lambda: here)
    finish(tmp_path, **({} if trained == "cpu" else {"device": trained}))
    assert len(own_text.rows(arguments(tmp_path))) == 1
    found = [[word for word in command if "use_cpu" in word] for command in commands]
    assert found == ([] if added is None else [added])


def test_stage_1_reads_the_training_documents_and_adapt_continues_from_it(monkeypatch, tmp_path):
    trained, commands = [], []
    monkeypatch.setattr(own_text, "run_to_its_end", lambda command, stdout: commands.append(command) or 2)
    monkeypatch.setattr(own_text, "refuse_missing", lambda *_: None)  # no data here
    monkeypatch.setattr(own_text, "prepare", lambda files, seed, *_: tmp_path / f"{files[0].parent.name}-{seed}")
    monkeypatch.setattr(own_text, "train", lambda folder, flags: trained.append((folder, flags)))
    with pytest.raises(BadInput, match="every one was refused"):
        own_text.rows(arguments(tmp_path, methods=["infocse", "spans"], sets=["med", "npl"], stage_1=True))
    stages = [tmp_path / f"stage-1_mini_{name}_seed-0" for name in ("med", "npl")] * 2
    assert [folder for folder, _ in trained] == stages
    assert [flags["train_file"] for _, flags in trained[:2]] == [
        str(tmp_path / f"{name}-0" / "documents.jsonl") for name in ("med", "npl")
    ], "never the held-out documents"
    assert all(flags["model_name_or_path"] == "mini" for _, flags in trained)
    assert [command[3] for command in commands] == [str(folder) for folder in stages]
    assert ["--aux_init=checkpoint" in command for command in commands] == [True, True, False, False]
    assert f"--output={tmp_path}/mini-stage-1_infocse_med_seed-0" in commands[0], "apart from runs without stage 1"


@pytest.mark.parametrize(("stage_1", "said"), [(True, "checkpoint"), (False, "new")])
def test_a_new_output_head_is_made_once(monkeypatch, tmp_path, stage_1, said):
    stages, commands = [], []
    monkeypatch.setattr(own_text, "run_to_its_end", lambda command, stdout: commands.append(command) or 2)
    monkeypatch.setattr(own_text, "refuse_missing", lambda *_: None)  # no data here
    monkeypatch.setattr(own_text, "prepare", lambda *_: tmp_path)
    monkeypatch.setattr(own_text, "train", lambda _, flags: stages.append(flags["output_init"]))
    with pytest.raises(BadInput, match="every one was refused"):
        own_text.rows(arguments(tmp_path, methods=["tsdae", "spans"], stage_1=stage_1, output_init="new"))
    assert stages == ["new", "new"] * stage_1
    assert [word for command in commands for word in command if "output_init" in word] == [f"--output_init={said}"]


def test_each_seed_has_its_own_start_after_stage_1():
    after = [made("spans", "med", (30, 40), (start, 58), "better", seed) for seed, start in enumerate((41, 43))]
    assert "| mini  | as it is | 42.00 ± 1.41 |" in own_text.table(after)


def test_a_set_that_is_not_there_stops_the_command_before_the_training(monkeypatch, tmp_path):
    monkeypatch.setattr(own_text, "run_to_its_end", lambda *_, **__: pytest.fail("trained"))
    with pytest.raises(BadInput, match="medd"):
        main(["own_text", "--models=m", "--sets=medd", f"--data_dir={tmp_path}", f"--folder={tmp_path / 'runs'}"])


def test_runs_are_gathered_from_their_folders(tmp_path):
    score = finish(tmp_path)
    args = arguments(tmp_path, methods=["spans", "simcse"], collect=True, figure=str(tmp_path / "gain.png"))
    [row] = own_text.rows(args)
    assert row["curve"] == [[0, 1.0], [30, 2.0]] and row["facts"]["start"] == "s" and row["real"] == score
    assert (tmp_path / "gain.png").read_bytes()[:4] == b"\x89PNG"
    args.sets = ["npl"]
    with pytest.raises(BadInput, match="no finished run; remove --collect"):
        own_text.rows(args)


@pytest.mark.parametrize("method", own_text.METHODS)
def test_every_method_is_one_that_trains_here(method):
    flags = own_text.METHODS[method]
    known = set(load_method(flags.get("method", "spans")).arguments.__dataclass_fields__)
    assert set(flags) - {"method", "bow_weight", "steps"} <= known
