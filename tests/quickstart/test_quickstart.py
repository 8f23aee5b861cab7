"""The quickstart learns in every seed; seed 0 is `make quickstart` itself."""

import pytest

from quickstart.__main__ import main


@pytest.mark.slow
@pytest.mark.parametrize("seed", [1, 2])
def test_stage_two_is_well_above_the_untrained_model_and_stage_one(seed, tmp_path):
    rows = main([f"--seed={seed}", f"--corpus={tmp_path / 'toy'}", f"--runs={tmp_path / 'runs'}"])
    for part in (0, 1):  # dev, test
        trained = rows["stage 2 (InfoCSE)"][part]["value"]
        assert trained >= rows["untrained"][part]["value"] + 5
        assert trained >= rows["stage 1"][part]["value"] + 5
