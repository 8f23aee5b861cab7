"""The tables as data: every file is whole, every row that names a configuration can be parsed, errors are clear."""

import pytest

from common.command_line import parse, read_config
from common.errors import BadInput
from eval.compare.published import records
from eval.scores import Key
from models.pooling import POOLINGS
from tables import specification
from tables.plans import config_path
from tables.scoring import needed
from tables.specification import names, read
from training.registry import argument_groups, load_method

TABLES = {name: read(name) for name in names()}
ROWS = [(name, row) for name, table in TABLES.items() for row in table.rows]
# Configurations that do not exist for the backbone of the paper's row, and why.
ABSENT = {
    "diffcse-bert-large": "its authors have none",
    **{f"{name}-bert-large": "what its authors changed for bert-large is not known" for name in
       ("consert-sup", "consert-joint", "consert-sup-unsup", "consert-joint-unsup", "ct", "sg-opt")},
}  # fmt: skip
TRAINED = [(name, row, backbone) for name, row in ROWS if row.config for backbone in ("mini", row.backbone)]
PATHS = [(row.overrides, config_path(row.config, backbone)) for _, row, backbone in TRAINED]
THERE = {f"{path.stem} {overrides}": (overrides, path) for overrides, path in PATHS if path.is_file()}


def test_all_tables_and_figures_of_the_three_papers_are_here():
    infocse = [f"infocse-{number}" for number in range(1, 13)]
    consert = [f"consert-{number}" for number in (2, 3, 4)] + [f"consert-figure-{number}" for number in (4, 5, 6, 7)]
    assert names() == [*consert, *infocse, "s-simcse-1"]
    counts = {name: len(table.rows) for name, table in TABLES.items()}
    assert counts["infocse-2"] == 21 and counts["consert-2"] == 11 and counts["consert-3"] == 16
    assert counts["consert-figure-5"] == 25 and counts["s-simcse-1"] == 9
    assert len(TABLES["infocse-3"].columns) == 15


def test_every_other_configuration_is_there():
    paths = {config_path(row.config, row.backbone) for _, row in ROWS if row.config}
    absent = {path.stem for path in paths if not path.is_file()}
    assert absent == set(ABSENT)
    for method in {row.config for _, row in ROWS if row.config}:
        assert config_path(method, "mini").is_file(), method
    assert config_path("is-bert", "bert-base").name == "is-bert-base.yaml"
    assert config_path("is-bert", "mini").name == "is-bert-mini.yaml"


@pytest.mark.parametrize(("overrides", "path"), THERE.values(), ids=THERE)
def test_every_override_is_a_flag_of_its_method(overrides, path):
    flags = [f"--{name}={value}" for name, value in overrides.items()]
    method = load_method(read_config(str(path))["method"])
    parsed = parse([f"--config={path}", *flags, "--bf16=false", "--use_cpu=true"], argument_groups(method), "")
    values = {name: value for group in parsed for name, value in vars(group).items()}
    for name, value in overrides.items():
        assert type(values[name])(value) == values[name] or str(values[name]).lower() == value
    method.masking(parsed[1])


def test_untrained_rows_name_a_pooling_and_columns_a_task_that_exists():
    assert {row.evaluate for _, row in ROWS if row.evaluate} <= set(POOLINGS)
    for table in TABLES.values():
        for column in table.columns:
            tasks = [task for some in needed([column], "nowhere").values() for task in some]
            assert column.key.metric == "ndcg@10" or tasks, column


def test_cells_hold_the_numbers_of_the_papers():
    def printed(table, label, task, split="test", metric="spearman"):
        [row] = [row for row in TABLES[table].rows if row.label == label]
        return records()[row.published].scores[Key(task, split, "test", metric)].mean

    assert printed("infocse-2", "InfoCSE-BERT-large", "Avg.") == 80.18
    assert printed("infocse-2", "ConSERT-base", "STS12") == 64.64
    assert printed("infocse-3", "SimCSE large", "fever", metric="ndcg@10") == 17.76
    assert printed("infocse-7", "35%", "STS-B", "dev") == 84.70
    assert printed("infocse-7", "40%", "STS-B", "dev") == 85.49
    assert printed("infocse-8", "lambda 5e-3", "STS-B", "dev") == 80.48
    assert printed("infocse-9", "DiffCSE, cls", "STS-B", "dev") == 83.90
    assert printed("infocse-11", "InfoCSE", "STS-B retrieval", metric="recall@1") == 80.41
    assert printed("s-simcse-1", "S-SimCSE-BERT-large w/ sd", "Avg.") == 79.27
    assert printed("consert-3", "ConSERT-large joint-unsup", "Avg.") == 81.28
    assert printed("consert-4", "batch size 288", "Avg.") == 72.98
    assert printed("consert-figure-4", "BERT-base", "Avg.", metric="spearman without 34 tokens") == 61.66
    assert printed("consert-figure-5", "none, none", "Avg.") == 63.84


def test_the_shifted_averages_of_infocse_table_12_are_marked():
    found = {row.label: row.misprints for row in TABLES["infocse-12"].rows if row.misprints}
    assert found == {"w/ RTD (DiffCSE)": {"Avg.": 78.27}, "w/ MLM (InfoCSE)": {"Avg.": 78.49}}


GOOD = """title: t
paper: p
place: table 1
backbone: bert-base
figure: {kind: curve, x: rate, y: score}
columns: [{tasks: [STS-B], split: dev}]
rows:
- {label: one, published: infocse-bert-base, config: infocse, overrides: {mask_rate: 0.1, aux_detach: false}, x: 1}
- {label: two, published_only: because, x: 2}
"""


def test_a_file_is_read_as_it_says(tmp_path):
    (tmp_path / "a-1.yaml").write_text(GOOD, encoding="utf-8")
    table = read("a-1", tmp_path)
    assert [column.name for column in table.columns] == ["STS-B dev"]
    assert table.rows[0].overrides == {"mask_rate": "0.1", "aux_detach": "false"}
    assert table.rows[1].backbone == "bert-base" and table.figure.kind == "curve"


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        ("title: t\n", "", "key 'title' is missing"),
        ("place:", "page: 3\nplace:", "unknown key 'page'"),
        ("config: infocse", "conifg: infocse", "unknown key 'conifg'"),
        ("published_only: because", "note: because", "row 'two': one of config, evaluate, published_only is needed"),
        ("published_only: because", "published_only: never, after: simcse", "belong to a config"),
        ("published: infocse-bert-base", "published: infocse-bert-bass", "did you mean 'infocse-bert-base'?"),
        ("published: infocse-bert-base", "published: skip-thought", "'skip-thought' has none of the columns"),
        ("mask_rate: 0.1", "mask_rate: [0.1]", "'mask_rate' needs one value"),
        ("label: two", "label: one", "label 'one' twice"),
        ("split: dev}", "split: dev, statistic: median}", "statistic 'median' is none of"),
        ("kind: curve", "kind: cake", "kind 'cake' is none of"),
        ("kind: curve", "kind: heat map", "needs its place"),
        (", x: 2", "", "needs its place"),
        ("rows:\n", "rows: {}\nrest:\n", "unknown key 'rest'"),
        ("title: t", "title: !!python/name:os.system", "not a YAML file"),
        ("title: t", "title: t\ntitle: u", "key 'title' twice"),
        ("overrides:", "misprints: {Avg.: 3}, overrides:", "misprints of 'Avg.', which is no column"),
    ],
)
def test_a_damaged_file_is_refused_in_one_line(tmp_path, old, new, said):
    assert old in GOOD
    (tmp_path / "a-1.yaml").write_text(GOOD.replace(old, new, 1), encoding="utf-8")
    with pytest.raises(BadInput) as caught:
        read("a-1", tmp_path)
    assert said in str(caught.value) and str(tmp_path / "a-1.yaml") in str(caught.value)
    assert "\n" not in str(caught.value)


def test_an_unknown_table_is_refused_with_the_nearest():
    with pytest.raises(BadInput, match="table 'infocse-44' is unknown; did you mean 'infocse-4'"):
        specification.read("infocse-44")
    with pytest.raises(BadInput, match=r"choose from: .*s-simcse-1"):
        specification.read("zzz")
