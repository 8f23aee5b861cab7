"""The training step of every objective, as the scripts build it, on generated models and text."""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

import numpy as np
import torch
from transformers import (
    BertConfig,
    BertForMaskedLM,
    BertTokenizer,
    RobertaConfig,
    RobertaForMaskedLM,
)

from common.files import ROOT
from data.source import source_of
from data.tokenised import load_tokenised
from data.tokenizer import SPECIAL
from models.loading import load_tokenizer
from training import builders
from training.methods import STAGE_ONE as STAGE_ONE_SCRIPT
from training.methods import load_method, script_of
from training.settings import fill, kinds_of
from training.stages import load_blocks
from training.trainer import EmbeddingTrainer

STAGE_ONE = "stage 1"
# LENGTHS[n] of the first 11,914 lines of SimCSE's wiki1m_for_simcse.txt have n tokens (WordPiece of
# bert-base-uncased, special tokens included, truncated at 32). Mean 21.9; 27 % are truncated.
LENGTHS = [0, 0, 0, 34, 151, 236, 284, 275, 247, 231, 252, 256, 273, 302, 332, 373, 347, 384]
LENGTHS += [376, 363, 371, 392, 371, 400, 352, 330, 323, 303, 298, 315, 253, 261, 3229]
WORDS = ["".join(letters) for letters in itertools.product("abcdefghijkl", repeat=3)]
FAMILIES = {"bert": (BertConfig, BertForMaskedLM), "roberta": (RobertaConfig, RobertaForMaskedLM)}
TINY = {"hidden_size": 24, "num_attention_heads": 12, "intermediate_size": 48}
TINY |= {"num_hidden_layers": 2, "vocab_size": len(SPECIAL) + len(WORDS)}
MINI = {"hidden_size": 384, "num_hidden_layers": 6, "intermediate_size": 1536}
MODELS: dict[str, dict[str, Any]] = {"bert-base": {}, "mini": MINI, "tiny": TINY}


@dataclass(frozen=True)
class Case:
    """One row: an objective and how its step is computed."""

    objective: str
    family: str = "bert"
    packed: bool = True
    precision: str = "float32"


class Materials:
    """Models with random weights and their tokenizer, and text with realistic sentence lengths.

    Args:
        folder: an empty folder for them.
        sizes: values of the models' configurations.
        batch: sentences per step.
        length: the most tokens per sentence.
        families: the models to make.
        rows: of the text; by default a few batches.
    """

    def __init__(
        self,
        folder: Path,
        sizes: Mapping[str, Any],
        batch: int,
        length: int,
        families: Sequence[str] = ("bert",),
        rows: int = 0,
    ) -> None:
        self.folder, self.batch, self.length = folder, batch, length
        torch.manual_seed(0)
        for name in families:
            config_class, model_class = FAMILIES[name]
            config = config_class(**sizes, pad_token_id=0)
            model_class(config).save_pretrained(folder / name)
            entries = [*SPECIAL, *WORDS][: config.vocab_size]
            vocabulary = {word: number for number, word in enumerate(entries)}
            self.tokenizer = BertTokenizer(vocab=vocabulary)
            self.tokenizer.save_pretrained(folder / name)
        words = np.array(WORDS[: config.vocab_size - len(SPECIAL)])
        self.skip_from = config.num_hidden_layers // 2
        generator = np.random.default_rng(0)
        share = np.array(LENGTHS) / sum(LENGTHS)
        lengths = generator.choice(len(LENGTHS), rows or 4 * max(batch, 100), p=share)
        self.lines = [" ".join(generator.choice(words, length - 2)) for length in lengths]
        (folder / "text").write_text("\n".join(self.lines) + "\n")
        pairs = ["premise\thypothesis\tlabel"]
        for premise, hypothesis in itertools.pairwise(self.lines):
            pairs.append(f"{premise}\t{hypothesis}\tneutral")
        (folder / "pairs").write_text("\n".join(pairs) + "\n")

    def parts(self, case: Case, **flags: object):
        """The model and the collator of a case."""
        trainer = self.trainer(case, **flags)
        return trainer.model, trainer.data_collator

    def trainer(self, case: Case, **flags: object) -> EmbeddingTrainer:
        """The Trainer of a case, as the training scripts build it; `flags` replace the case's."""
        if case.objective == STAGE_ONE:
            given = self._flags(case, self.folder / "text", {"skip_from": self.skip_from} | flags)
            settings = fill(STAGE_ONE_SCRIPT, given)
            _, tokenizer, blocks = load_blocks(settings)
            return builders.build_pretraining(settings, tokenizer, blocks)[0]
        method = load_method(case.objective)
        script = script_of(case.objective)
        file = self.folder / ("pairs" if method.labels else "text")
        small = {
            "generator": self.folder / case.family,
            "aux_init": "random",
            "skip_from": self.skip_from,
            "queue_size": 4 * self.batch,
        }
        known = [field.name for kind in kinds_of(script, method) for field in fields(kind)]
        more = {name: value for name, value in small.items() if name in known}
        given = self._flags(case, file, more | flags)
        name = case.objective.replace("_", "-").removesuffix("-bert")
        if case.objective == "nli":  # its configurations have other names
            name = "consert-joint"
        own = ROOT / "configs" / f"{name}-bert-base.yaml"
        if own.is_file():
            given["config"] = [own, own.with_name("mini.yaml")]
        else:
            given["method"] = method.name
        settings = fill(script, given)
        tokenizer = load_tokenizer(settings.model_args.model_name_or_path)
        text = load_tokenised(
            source_of(settings.data_args, method.labels), tokenizer, settings.data_args.cache_dir
        )
        return builders.build_training(
            settings, method.tokenizer(settings.method_args, tokenizer), text, None
        )[0]

    def _flags(self, case: Case, file: Path, more: dict[str, object]) -> dict[str, object]:
        return {
            "model_name_or_path": self.folder / case.family,
            "train_file": file,
            "cache_dir": self.folder / "cache",
            "output_dir": self.folder / "run",
            "packed": case.packed,
            "bf16": case.precision == "bf16",
            "max_length": self.length,
            "per_device_train_batch_size": self.batch,
            "use_cpu": True,
            "report_to": "none",
            **more,
        }
