"""The tables as data: files are well formed, and configurations take the rows' overrides."""

import pytest

from baselines.__main__ import parser as baseline_parser
from eval.compare.sides import records
from models.pooling import POOLINGS
from papers.plans import GLOVE, config_files, config_name, plan_of
from papers.results import needed
from papers.runs import Choice, RunPlan
from papers.specification import names, read
from training.config_files import read_config, words_of
from training.methods import script_of
from training.settings import read as settings_of

TABLES = {name: read(name) for name in names()}
ROWS = [(name, row) for name, table in TABLES.items() for row in table.rows]
TRAINED = {}
for row in (row for _, row in ROWS if row.config and not row.baseline):
    for config in (config_name(row.config, backbone) for backbone in ("mini", row.backbone)):
        TRAINED[f"{config} {row.overrides}"] = row.overrides, config_files(config)


@pytest.mark.parametrize(("overrides", "files"), TRAINED.values(), ids=TRAINED)
def test_every_override_is_a_flag_of_its_method(overrides, files):
    script = script_of(read_config(*files)["method"])
    flags = {"config": files, **overrides, "bf16": False, "use_cpu": True}
    settings = settings_of(script, words_of(flags), "")
    values = settings.values
    for name, value in overrides.items():
        assert type(values[name])(value) == values[name] or str(values[name]).lower() == value
    settings.method.masking(settings.method_args)


@pytest.mark.parametrize("backbone", ["mini", None])
def test_every_baseline_s_command_parses(backbone, tmp_path):
    (tmp_path / GLOVE).parent.mkdir()
    (tmp_path / GLOVE).touch()
    choice = Choice(backbone=backbone, model="m", data_dir=str(tmp_path))
    plans = [plan_of(TABLES[name], row, choice) for name, row in ROWS if row.baseline]
    commands = [plan.command(choice, 3) for plan in plans if isinstance(plan, RunPlan)]
    assert {argv[2] for argv in commands} == {"flow", "whitening", "word_vectors"}
    for argv in commands:
        args = baseline_parser().parse_args(argv[2:])
        assert getattr(args, "seed", 3) == 3


def test_untrained_rows_name_a_pooling_and_columns_a_task_that_exists():
    assert {row.evaluate for _, row in ROWS if row.evaluate} <= set(POOLINGS)
    for table in TABLES.values():
        for column in table.columns:
            tasks = [task for some in needed([column], "nowhere").values() for task in some]
            assert column.key.metric in ("ndcg@10", "steps") or tasks, column


@pytest.mark.parametrize("table", TABLES.values(), ids=TABLES)
def test_a_table_s_parts_fit_together(table):
    columns = {column.name: column for column in table.columns}
    assert table.rows and len(columns) == len(table.columns)
    assert len({row.label for row in table.rows}) == len(table.rows)
    assert {column.statistic for column in table.columns} <= {"mean", "max", "best 3 of 7"}
    for row in table.rows:
        assert [row.config, row.evaluate, row.published_only].count(None) == 2
        assert row.config or not (row.overrides or row.after or row.baseline)
        assert row.misprints.keys() <= columns.keys()
        if row.published:
            assert records()[row.published].scores.keys() & {c.key for c in table.columns}, row
