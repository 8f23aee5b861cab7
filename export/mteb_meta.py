"""The card's section on MTEB: its `ModelMeta`, filled with what is known of the model.

Source of the fields: mteb/models/model_meta.py of embeddings-benchmark/mteb (2.x).
"""

from __future__ import annotations

from export.facts import Facts
from export.model import Model
from export.text import fenced, plain, short

_NAMES = {"STS-B": "STSBenchmark", "SICK-R": "SICK-R"} | {f"STS{year}": f"STS{year}" for year in range(12, 17)}


def mteb(model: Model, facts: Facts) -> str:
    """The section; empty where mteb, which loads by sentence-transformers, would give other vectors."""
    if not model.has_modules:
        return ""
    parameters = list(model.encoder.parameters())
    counted = {
        name: each for name, each in (facts.record.get("seen_test_texts") or {}).items() if isinstance(each, dict)
    }
    tasks = facts.method and {_NAMES[name] for name, each in counted.items() if name in _NAMES and each.get("seen")}
    text = ", ".join(plain(short(name)) for name in facts.text.get("files", []))
    fields = {
        "name": model.address if "/" in model.address else f"./{model.address}",
        "revision": None if model.repo else plain(facts.result_hash or "not recorded")[:16],
        "release_date": None,
        "languages": None,
        "n_parameters": sum(one.numel() for one in parameters),
        "memory_usage_mb": round(sum(one.numel() * one.element_size() for one in parameters) / 2**20, 1),
        "max_tokens": model.encoder.max_length,
        "embed_dim": model.dimension,
        "license": None,
        "open_weights": True,
        "public_training_code": None,
        "public_training_data": (facts.method and text) or None,
        "framework": ["Sentence Transformers", "PyTorch"],
        "similarity_fn_name": "cosine",
        "use_instructions": False,
        "training_datasets": tasks or None,
        "adapted_from": facts.base_model and plain(facts.base_model),
    }
    lines = "\n".join(f"    {name}={value!r}," for name, value in fields.items())
    snippet = (
        "from mteb.models import ModelMeta, SentenceTransformerEncoderWrapper\n\n"
        f"meta = ModelMeta(\n    loader=SentenceTransformerEncoderWrapper,\n{lines}\n)"
    )
    about = (
        "`training_datasets` names the tasks whose sentences stand in the training text, where that was counted. "
        "Licence, languages and a link to the training text are for you to state."
    )
    return f"### MTEB\n\n{fenced(snippet, 'python')}\n\n{about}"
