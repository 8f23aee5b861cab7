import matplotlib.image
import matplotlib.pyplot as plt
import pytest

from report.curves import draw, series

HISTORY = [
    {"step": 25, "epoch": 0.1, "loss": 2.0, "grad_norm": 1.0, "learning_rate": 1e-5, "contrastive": 1.9, "aux": 7.0},
    {"step": 50, "epoch": 0.2, "loss": 1.0, "grad_norm": 1.0, "learning_rate": 1e-5, "contrastive": 0.9, "aux": 6.0},
    {"step": 50, "epoch": 0.2, "eval_stsb_spearman": 71.5, "eval_uniformity": -1.5, "eval_mean_cosine": 0.3},
    {"step": 60, "epoch": 0.3, "train_runtime": 5.0, "train_loss": 1.5, "total_flos": 0.0,
     "train_samples_per_second": 1.0, "train_steps_per_second": 1.0},
]  # fmt: skip


@pytest.fixture
def drawn(monkeypatch):
    """The labels and lines of every picture, as they are when it is saved."""
    seen, save = [], plt.Figure.savefig

    def watched(self, path, **options):
        seen.append({axis.get_ylabel(): {line.get_label(): line.get_xydata().tolist() for line in axis.lines}
                     for axis in self.axes})  # fmt: skip
        return save(self, path, **options)

    monkeypatch.setattr(plt.Figure, "savefig", watched)
    return seen


def test_a_series_has_the_steps_and_values_of_one_name():
    assert series(HISTORY) == {
        "contrastive": ([25, 50], [1.9, 0.9]),
        "aux": ([25, 50], [7.0, 6.0]),
        "eval_stsb_spearman": ([50], [71.5]),
        "eval_uniformity": ([50], [-1.5]),
        "eval_mean_cosine": ([50], [0.3]),
    }
    assert series([]) == {}


def test_a_picture_is_written(tmp_path, drawn):
    path = tmp_path / "curves.png"
    draw(HISTORY, path)
    pixels = matplotlib.image.imread(path)
    assert pixels.shape[0] > 600
    assert pixels.std() > 0.01, "something is drawn"
    (picture,) = drawn
    terms, scores, spread = picture.values()
    assert terms == {"contrastive": [[25, 1.9], [50, 0.9]], "aux": [[25, 7.0], [50, 6.0]]}
    assert scores == {"eval_stsb_spearman": [[50, 71.5]]}
    assert spread == {"eval_uniformity": [[50, -1.5]], "eval_mean_cosine": [[50, 0.3]]}
    assert plt.get_fignums() == [], "the figure is closed"


def test_panels_without_anything_to_show_are_left_out(tmp_path, drawn):
    draw(HISTORY[:2], str(tmp_path / "terms.png"))
    draw(HISTORY[2:3], tmp_path / "scores.png")
    assert [list(picture) for picture in drawn] == [
        ["loss term (raw)"],
        ["dev, Spearman x 100", "spread of the vectors"],
    ]
    assert (tmp_path / "terms.png").stat().st_size > 0


def test_a_run_that_logged_nothing_has_no_picture(tmp_path, drawn):
    """Fewer steps than one logging step, no dev set: only the Trainer's closing line is there."""
    for history in ([], HISTORY[3:]):
        draw(history, tmp_path / "curves.png")
    assert drawn == []
    assert list(tmp_path.iterdir()) == []
