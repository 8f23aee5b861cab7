"""What the README shows of the folder is what the folder holds."""

from pathlib import Path

from tables import methods

ROOT = Path(__file__).parents[1]


def test_the_readme_s_method_table_is_the_folder_s():
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    assert methods.BEGIN in readme
    assert methods.rewritten(readme) == readme, "run python -m tables.methods"
    for path in (ROOT / "models" / "objectives").glob("*.py"):
        assert path.stem in ("__init__", "base") or path.name in readme


def test_published_averages_stand_beside_their_configurations():
    line = next(line for line in methods.table().splitlines() if "esimcse.py" in line)
    assert "78.27 (esimcse-bert-base)" in line and "`esimcse-mini`" in line
