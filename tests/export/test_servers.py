"""What text-embeddings-inference and vLLM read of an export, held against how their sources read
it. text-embeddings-inference: the old booleans of the pooling, `max_seq_length`, and the model's
own type and size. vLLM: module types in the old form; older versions take the first key of the
pooling file that is true, newer ones the name too. Neither runs here."""

import json

import pytest

from export.__main__ import main


@pytest.mark.parametrize(
    ("pooling", "mode"), [("cls_before_pooler", "cls"), ("avg", "mean"), ("cls", "cls")]
)
def test_servers_find_the_pooling(make_run, tmp_path, pooling, mode):
    head = "batch_norm" if pooling == "cls" else None
    main([str(make_run(pooling, head)), "--output", str(tmp_path / "out")])

    def read(name):
        return json.loads((tmp_path / "out" / name).read_text())

    settings = read("1_Pooling/config.json")
    true = [key for key, value in settings.items() if value is True]
    assert true[0].removeprefix("pooling_mode_").split("_")[0] == mode
    assert [key for key in true if key.startswith("pooling_mode_")] == true[:1]
    assert settings["pooling_mode"] == mode
    described = {"max_seq_length": 64, "do_lower_case": False}
    described["model_args"] = {"add_pooling_layer": False}
    assert read("sentence_bert_config.json") == described
    kinds = [module["type"] for module in read("modules.json")]
    expected = ["Transformer", "Pooling"] + ["Dense"] * (2 if head else 0)
    assert kinds == [f"sentence_transformers.models.{name}" for name in expected]
    config = read("config.json")
    assert (config["architectures"], config["model_type"]) == (["BertModel"], "bert")
    assert config["max_position_embeddings"] == 64
