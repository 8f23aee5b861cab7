"""`--format mteb`: which scores are mteb's, and that mteb reads what is written."""

import pytest

import eval.__main__ as command
from common.errors import BadInput
from eval.mteb_files import scores_by_task
from eval.scores import row


def test_scores_of_mteb_protocols_are_taken():
    rows = [
        row("STS12", "test", "spearman", "all", 3108, 70.0),
        row("STS12", "test", "pearson", "all", 3108, 60.0),
        row("STS12", "test", "spearman", "mean", 3108, 50.0),
        row("STS-B", "test", "spearman", "single", 1379, 80.0),
        row("scifact", "test", "ndcg@10", "mean of queries", 300, 64.0),
        row("scifact", "test", "map", "mean of queries", 300, 20.0),
    ]
    others = [
        row("STS-B", "dev", "spearman", "single", 1500, 80.0),
        row("SICK-R", "test", "spearman", "single", 4927, 77.0),  # other pairs than mteb's
        row("MR", "test", "accuracy", "single", 10662, 80.0),
        row("cqadupstack", "test", "ndcg@10", "mean of forums", 13145, 30.0),
    ]
    assert scores_by_task(rows + others) == {
        "STS12": {"cosine_spearman": 0.7, "cosine_pearson": 0.6},
        "STSBenchmark": {"cosine_spearman": 0.8},
        "SciFact": {"ndcg_at_10": 0.64},
    }


def test_mteb_reads_what_the_command_writes(tiny_bert, beir, tmp_path):
    mteb = pytest.importorskip("mteb", reason="requirements-extra.txt has it")
    beir.root.joinpath("beir", "small").rename(beir.root / "beir" / "scifact")
    flags = [
        "--pooling=avg",
        "--tasks=beir",
        "--beir=scifact",
        f"--data_dir={beir.root}",
        "--format=mteb",
    ]
    with pytest.raises(BadInput, match="needs --output"):
        command.main([f"tiny={tiny_bert}", *flags])
    rows = command.main([f"tiny={tiny_bert}", *flags, f"--output={tmp_path / 'out'}"])
    [model] = mteb.ResultCache(tmp_path / "out").load_results(include_remote=False).model_results
    [result] = model.task_results
    assert (model.model_name, result.task_name) == ("local/tiny", "SciFact")
    assert result.get_score() == pytest.approx(rows[0]["value"] / 100, abs=1e-6)
