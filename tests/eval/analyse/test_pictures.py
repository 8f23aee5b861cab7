"""What the charts show: the given values and all models, and no name misread as mathematics."""

import matplotlib.pyplot as plt
import pytest

from eval.analyse.pictures import draw


@pytest.fixture
def drawn(monkeypatch):
    """The lines, titles and texts of every figure as it is when it is saved."""
    seen, save = [], plt.Figure.savefig

    def watched(self, path, **options):
        lines = {line.get_label(): line.get_xydata().tolist() for axis in self.axes for line in axis.lines}
        legend = [text.get_text() for one in self.legends for text in one.get_texts()]
        seen.append((lines, [axis.get_title() for axis in self.axes], [text.get_text() for text in self.texts], legend))
        return save(self, path, **options)

    monkeypatch.setattr(plt.Figure, "savefig", watched)
    return seen


def test_alignment_and_uniformity_as_a_picture(tmp_path, drawn):
    one = {"alignment": 0.2, "uniformity": -2.5, "positives": 1231, "sentences": 2551}
    results = {"_a": one, "$b$": {**one, "alignment": 0.1}}  # matplotlib leaves out labels with an underscore
    draw("alignment_uniformity", results, "STS-B test", tmp_path / "p.png")
    ((lines, titles, _, legend),) = drawn
    assert lines == {"_a": [[-2.5, 0.2]], "$b$": [[-2.5, 0.1]]} and legend == ["_a", "$b$"]
    assert titles == ["STS-B test: 1,231 pairs with gold > 4, 2,551 sentences"]
    assert plt.get_fignums() == [], "no figure is left open"


def test_bins_without_pairs_are_left_out(tmp_path, drawn):
    names = ("mean", "lower_quartile", "upper_quartile")
    bins = [{"from": i, "to": i + 1, "pairs": i, **dict.fromkeys(names, 0.5 if i else None)} for i in range(5)]
    draw("cosine_by_gold", {"a": {"pairs": 10, "bins": bins}}, "STS-B test", tmp_path / "p.png")
    assert drawn[0][0] == {"a": [[i, 0.5] for i in range(1, 5)]}
