"""Compare our scores with mteb's own, from the same local data; needs requirements-extra.txt."""

from pathlib import Path

import pytest

import eval.__main__ as command
from eval.compare.sides import published
from eval.encode import Encode
from eval.published.__main__ import tasks_of
from eval.scores import headline, rows_of
from eval.sts import merged
from eval.tasks import score_all
from eval.transfer.tasks import tasks as transfer_tasks
from models.encoder import load_encoder

mteb = pytest.importorskip("mteb", reason="requirements-extra.txt has it")

from datasets import Dataset, DatasetDict  # noqa: E402
from mteb.abstasks import AbsTaskClassification  # noqa: E402
from mteb.abstasks.task_metadata import TaskMetadata  # noqa: E402
from mteb.models.abs_encoder import AbsEncoder  # noqa: E402
from mteb.models.model_meta import ModelMeta  # noqa: E402
from mteb.models.sentence_transformer_wrapper import SentenceTransformerEncoderWrapper  # noqa: E402

STS = {f"STS{year}": f"STS{year}" for year in range(12, 17)} | {
    "STS-B": "STSBenchmark",
    "SICK-R": "SICK-R",
}
BOUND = 0.01  # points, 1e-4 of mteb's


@pytest.fixture(scope="module")
def theirs(minilm):
    """Mteb's main score x 100 of a task whose data are loaded."""
    model = SentenceTransformerEncoderWrapper(str(minilm), device="cpu")
    return lambda task: score(model, task)


def score(model, task):
    task.data_loaded = True
    [result] = mteb.evaluate(
        model, task, cache=None, co2_tracker=False, show_progress_bar=False
    ).task_results
    return 100 * result.get_score()


class Ours(AbsEncoder):
    """Our vectors for mteb."""

    def __init__(self, folder):
        encoder, tokenizer = load_encoder(str(folder))
        self.vectors = Encode(encoder.eval(), tokenizer)
        self.mteb_model_meta = ModelMeta.create_empty({"name": "local/ours"})

    def encode(self, inputs, **_):
        return self.vectors([text for batch in inputs for text in batch["text"]])


@pytest.fixture(scope="module")
def sts_tasks():
    """The seven sets by name; SICK-R with all pairs, as in mteb."""
    return {task.name: task for task in tasks_of(["sts"], published("all-minilm-l6-v2"))}


@pytest.mark.parametrize("name", STS)
def test_sts_scores_equal_those_of_mteb(name, sts_tasks, minilm, theirs, data_dir, record_property):
    ours = sts_tasks[name]
    encoder, tokenizer = load_encoder(str(minilm))
    [row] = headline(
        rows_of(score_all(Encode(encoder.eval(), tokenizer), [ours], data_dir), "MiniLM", None)
    )
    pairs = merged(ours.load(data_dir))
    task = mteb.get_task(STS[name])
    columns = {"sentence1": pairs.left, "sentence2": pairs.right, "score": pairs.gold}
    task.dataset = DatasetDict(test=Dataset.from_dict(columns))
    equal(row["value"], theirs(task), name)


def test_scifact_equals_that_of_mteb(minilm, theirs, data_dir):
    flags = ["--tasks", "beir", "--beir", "scifact", "--data_dir", data_dir]
    row, *_ = headline(command.main([str(minilm), *flags]))
    folder = Path(data_dir) / "beir" / "scifact"
    task = mteb.get_task("SciFact")
    task.dataset = {"default": {"test": split_of(folder)}}
    equal(row["value"], theirs(task), "SciFact")


def split_of(folder):
    """BEIR's files in the form of mteb's retrieval tasks."""
    import json

    lines = (json.loads(line) for line in (folder / "corpus.jsonl").open())
    corpus = [{"id": line["_id"], "title": line["title"], "text": line["text"]} for line in lines]
    queries = [json.loads(line) for line in (folder / "queries.jsonl").open()]
    judged = {}
    for line in (folder / "qrels" / "test.tsv").read_text().splitlines()[1:]:
        query, document, grade = line.split("\t")
        judged.setdefault(query, {})[document] = int(grade)
    return {
        "corpus": Dataset.from_list(corpus),
        "queries": Dataset.from_list(
            [{"id": q["_id"], "text": q["text"]} for q in queries if q["_id"] in judged]
        ),
        "relevant_docs": judged,
        "top_ranked": None,
    }


class Sst2(AbsTaskClassification):
    metadata = TaskMetadata(
        name="SST2Local",
        description="SST-2 from local files",
        type="Classification",
        dataset={"path": "local/sst2", "revision": "local"},
        eval_splits=["test"],
        eval_langs=["eng-Latn"],
        main_score="accuracy",
    )


def test_classification_by_mteb_of_our_vectors_equals_that_of_its_loader(minilm, theirs, data_dir):
    """SentEval's protocol is another: all training rows, where mteb draws eight of a label."""
    [sst2] = (task for task in transfer_tasks() if task.name == "SST2")
    train, _, test = sst2.load(data_dir).values()
    task = Sst2()
    task.dataset = DatasetDict(
        {
            name: Dataset.from_dict(
                {"text": [text for (text,) in part.texts], "label": list(map(int, part.labels))}
            )
            for name, part in (("train", train), ("test", test))
        }
    )
    equal(score(Ours(minilm), task), theirs(task), "SST-2, mteb's protocol")


def equal(ours, theirs, name):
    print(f"{name}: ours {ours:.4f}, mteb {theirs:.4f}")  # noqa: T201
    assert ours == pytest.approx(theirs, abs=BOUND)
