"""A data set of the hub gives the rows of its files, or one line that says what is wrong."""

import json
import os
import subprocess
import sys

from tests.data.conftest import REPO
from tests.sources import ROOT

# One process for all cases: the library reads HF_ENDPOINT when it is imported.
SCRIPT = """
import json, sys
from common.arguments import SentenceArguments
from common.errors import BadInput
from data.source import source_of
from data.text import read_text
for flags in json.loads(sys.argv[1]):
    try:
        source = source_of(SentenceArguments(**flags, cache_dir=sys.argv[2]))
        print(json.dumps([source.file_names, read_text(source, sys.argv[2]).rows[:]]))
    except BadInput as error:
        print(json.dumps(str(error)))
"""


def outcomes(tmp_path, *cases, **variables):
    environment = os.environ | {"HF_HOME": str(tmp_path / "home"), "PYTHONPATH": str(ROOT)} | variables
    command = [sys.executable, "-c", SCRIPT, json.dumps(cases), str(tmp_path / "cache")]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
    return [json.loads(line) for line in done.stdout.splitlines()]


def test_rows_names_and_splits(hub, tmp_path):
    rows = [{"text": "a dog", "title": ""}, {"text": "a river", "title": "b"}]
    lines = "".join(json.dumps(row) + "\n" for row in rows)
    hub.files |= {"train.jsonl": lines.encode(), "test.jsonl": b'{"text": "c"}\n'}
    good = {"dataset_name": REPO}
    cases = [good, good | {"title_column": "title"}]
    cases += [good | {"dataset_split": split} for split in ("test", "no")]
    cases += [good | {"dataset_config_name": "no"}, {"dataset_name": "no/such"}, good | {"text_column": ["body"]}]
    plain, titled, test, *bad = outcomes(tmp_path, *cases)
    assert plain == [[REPO], {"0": ["a dog", "a river"]}]
    assert titled == [[REPO], {"0": ["", "b"], "1": ["a dog", "a river"]}]
    assert test == [[REPO], {"0": ["c"]}]
    said = ['cannot be loaded (Unknown split "no"', "'no' not found. Available: ['default']", "--dataset_name no/such"]
    said.append("no column 'body' (see --text_column) among text, title")
    assert all(part in error for part, error in zip(said, bad, strict=True)), bad
    hub.files.clear()
    assert outcomes(tmp_path, good, HF_HUB_OFFLINE="1") == [plain], "what was downloaded is used without a connection"
