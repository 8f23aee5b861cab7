"""Load a checkpoint (configuration, tokenizer, backbone) completely or not at all."""

from __future__ import annotations

import logging
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
import torch.nn.functional as F
from huggingface_hub import is_offline_mode
from huggingface_hub.errors import LocalEntryNotFoundError
from tokenizers import Tokenizer
from tokenizers.normalizers import BertNormalizer
from tokenizers.pre_tokenizers import ByteLevel
from torch import Tensor
from transformers import (
    MODEL_MAPPING,
    AutoConfig,
    AutoModel,
    AutoTokenizer,
    PreTrainedTokenizerFast,
)
from transformers.utils import WEIGHTS_INDEX_NAME, WEIGHTS_NAME
from transformers.utils import logging as transformers_logging

from common.errors import BadInput, brief
from common.files import RUN_FILE
from models.families import FAMILIES, attends_backwards, without_pooler
from models.folder import (
    check_config,
    check_finite,
    head_as_pooler,
    settle,
    tokenizer_files,
    weights_of,
)

if TYPE_CHECKING:
    from transformers import PreTrainedModel

NO_LIMIT = 10**9  # tokens per sentence
logger = logging.getLogger(__name__)
_DROPOUT = """hidden_dropout_prob attention_probs_dropout_prob dropout attention_dropout
    embedding_dropout mlp_dropout hidden_dropout resid_pdrop embd_pdrop attn_pdrop resid_dropout
    embed_dropout residual_dropout""".split()


@contextmanager
def quiet():
    """Silence transformers' loading report; `load_strictly` does its checks."""
    level = transformers_logging.get_verbosity()
    bar = transformers_logging.is_progress_bar_enabled()
    transformers_logging.set_verbosity_error()
    transformers_logging.disable_progress_bar()
    try:
        yield
    finally:
        transformers_logging.set_verbosity(level)
        if bar:
            transformers_logging.enable_progress_bar()


def load_strictly(
    model_class,
    path: str,
    config,
    without: str = "missing weights are never initialised at random",
    simcse_head: bool = False,
    **extra,
) -> PreTrainedModel:
    """Call `model_class.from_pretrained` in float32, with every tensor from the file.

    Half-precision checkpoints are converted to float32: small optimizer steps would be rounded
    away. With `simcse_head`, the head of SimCSE's training, if the file has one, is the pooler.
    BadInput names a missing tensor, and says `without`: what to do about it.
    """
    options: dict[str, Any] = {"trust_remote_code": False, "weights_only": True} | extra
    try:
        file = weights_of(path)
        pickled = file.name in (WEIGHTS_NAME, WEIGHTS_INDEX_NAME)
        if simcse_head:
            options |= head_as_pooler(file)
        with quiet():  # the folder of the file: for a hub id the library would look for another
            model, info = model_class.from_pretrained(
                file.parent,
                config=config,
                dtype=torch.float32,
                use_safetensors=not pickled,
                output_loading_info=True,
                **options,
            )
    except BadInput:
        raise
    except Exception as error:  # the libraries raise all kinds of errors on unexpected files
        reason = brief(error)
        if "ignore_mismatched_sizes" in reason:  # it refers to the report, which `quiet` silences
            reason = "its tensors have other sizes than its config.json says"
        raise BadInput(f"cannot load '{path}' with {model_class.__name__}: {reason}") from error
    if missing := sorted(info["missing_keys"]):
        raise BadInput(
            f"'{path}' lacks {len(missing)} tensors of a {type(model).__name__}, for example "
            f"{missing[0]}; {without}"
        )
    prefix = f"{model.base_model_prefix}."
    own = {name.split(".")[0] for name, _ in model.base_model.named_parameters()}
    for name in sorted(info["unexpected_keys"]):
        part = name.removeprefix(prefix).split(".")[0]
        # Not the buffers that older versions of the library saved.
        weight = name.endswith((".weight", ".bias"))
        if part in own and weight and not name.endswith(("attn.bias", "attention.bias")):
            raise BadInput(
                f"'{path}' has tensors that a {type(model).__name__} with its config.json does not "
                f"have, for example {name}; does config.json belong to these weights?"
            )
    check_finite(path, dict(model.named_parameters()))
    if pickled:
        parts = {name.removeprefix(prefix).split(".")[0] for name in info["unexpected_keys"]}
        logger.info(
            "'%s': weights from pytorch_model.bin, read as tensors only; left out: %s",
            *(path, ", ".join(sorted(parts)) or "nothing"),
        )
    return model


def load_backbone(path: str, config=None) -> PreTrainedModel:
    """Load an `AutoModel` without a pooler, every tensor from the file.

    BadInput names a missing one.
    """
    config = config if config is not None else load_config(path)
    if config.is_encoder_decoder or type(config) not in MODEL_MAPPING:
        raise BadInput(
            f"'{path}': a model of type '{config.model_type}' is not supported as a sentence "
            "encoder"
        )
    known = MODEL_MAPPING[type(config)]
    model_class: Any = known[0] if isinstance(known, tuple) else known
    model = load_strictly(AutoModel, path, config, **without_pooler(model_class))
    if config.model_type not in FAMILIES:
        _try_out(path, model)
    if attends_backwards(model):
        model.config.use_cache = False  # the key-value cache is only for generation
    return model


@torch.no_grad()
def _try_out(path: str, model: PreTrainedModel) -> None:
    """Run a model of another family on a few tokens, alone and padded.

    Raises:
        BadInput: ids and a mask are not enough for it, or it does not read the mask, so that a
            vector would depend on the other texts of its batch.
    """
    pad = getattr(model.config, "pad_token_id", None) or 0
    known = range(min(6, getattr(model.config, "vocab_size", None) or 6))
    ids = torch.tensor([[number for number in known if number != pad]])
    count = ids.shape[1]
    padded = F.pad(ids, (0, 3), value=pad)
    mask = (torch.arange(padded.shape[1]) < count).long()[None]
    try:
        alone, beside = (
            model(input_ids=row, attention_mask=mask[:, : row.shape[1]]).last_hidden_state[
                :, :count
            ]
            for row in (ids, padded)
        )
    except Exception as error:  # as above
        reason = brief(error)
        raise BadInput(
            f"'{path}': a '{model.config.model_type}' does not run on ids and a mask: {reason}"
        ) from error
    if not torch.allclose(alone, beside, rtol=0, atol=1e-3 * float(alone.abs().max())):
        raise BadInput(
            f"'{path}': a '{model.config.model_type}' does not mask padding, so a text's vector "
            "would depend on the others of its batch; choose another model"
        )


def load_config(path: str):
    """Load the configuration of a folder or hub id; BadInput without one, or for an unusual one."""
    try:
        check_config(path)
        config = AutoConfig.from_pretrained(path, trust_remote_code=False)
    except BadInput:
        raise
    except Exception as error:  # as above
        raise _unreadable("configuration (config.json)", path, error) from error
    settle(path, config)
    return config


# What transformers rebuilds wrongly shows in some of these, or in pieces of the vocabulary itself.
_SAMPLE = """The DOG isn't naïve, über 1,234.5 км
Кошка спит в саду. 猫は庭で寝ています。 ไทย हिन्दी العربية 😀 ﬁ ½  two  spaces """.split("\n")
_PIECES = 200  # of the vocabulary, beside the sample
# Classes of transformers 4 whose settings decide about the start and the end, not the file.
_FRAMED = ("LlamaTokenizer", "CodeLlamaTokenizer", "GemmaTokenizer", "CohereTokenizer")


def load_tokenizer(path: str):
    """Load the fast tokenizer of a folder or hub id.

    transformers 5 builds some classes anew from the vocabulary of tokenizer.json. Where this gives
    other ids than the file itself, the file is loaded, with the settings that transformers 4 put
    above the file's.

    Raises:
        BadInput: there is none, it has only special tokens, or an impossible maximum length.
    """
    try:
        tokenizer = _built_or_read(path)
    except BadInput:
        raise
    except Exception as error:  # as above
        raise _unreadable("tokenizer", path, error) from error
    if not tokenizer.is_fast:
        name = type(tokenizer).__name__
        raise BadInput(f"'{path}': {name} is a slow tokenizer; it needs a tokenizer.json")
    tokenizer.init_kwargs.pop("auto_map", None)  # names a code file, which a saved copy lacks
    # As in training: positions are counted from a sentence's first token.
    tokenizer.padding_side = "right"
    if tokenizer.model_input_names[:1] != ["input_ids"]:
        raise BadInput(
            f"'{path}': tokenizer_config.json has model_input_names "
            f"{tokenizer.model_input_names!r}, which must begin with input_ids"
        )
    limit = tokenizer.model_max_length
    if type(limit) not in (int, float) or limit < 1:
        raise BadInput(
            f"'{path}': tokenizer_config.json has model_max_length {limit!r}; give a number of "
            "tokens, or remove it"
        )
    if len(tokenizer.get_vocab()) <= len(set(tokenizer.all_special_ids)):
        missing = ValueError("it has only special tokens; are its files (tokenizer.json) missing?")
        raise _unreadable("tokenizer", path, missing)
    if tokenizer.pad_token_id is None:
        frame = tokenizer.convert_ids_to_tokens(tokenizer("")["input_ids"][-1:])
        named = [tokenizer.eos_token, tokenizer.sep_token, *frame, tokenizer.unk_token]
        padding = next((token for token in named if token is not None), None)
        if padding is None:
            raise BadInput(f"'{path}': its tokenizer has no token to pad with; name a pad_token")
        logger.info(
            "'%s': its tokenizer has no padding token; padding with %s, masked", path, padding
        )
        tokenizer.pad_token = padding
    return tokenizer


def _built_or_read(path: str):
    """The tokenizer as transformers builds it or, if that has other ids, as its file states it."""
    file, stated = tokenizer_files(path)
    built = None
    try:
        built = AutoTokenizer.from_pretrained(path, trust_remote_code=False)
    except Exception:  # the class it names may not fit its file
        if file is None:
            raise
    if file is None:
        return built
    vocabulary = Tokenizer.from_file(str(file)).get_vocab()
    options = _frame_settings(stated)
    for name, token in ({} if built is None else built.special_tokens_map).items():
        if token in vocabulary:  # as the class names them, unless the folder does
            options[name] = token
    read = PreTrainedTokenizerFast.from_pretrained(path, **options)
    if built is None:
        return read
    _take_settings(read.backend_tokenizer, built.backend_tokenizer)
    pieces = sorted(vocabulary, key=lambda piece: vocabulary[piece])
    texts = [*_SAMPLE, *pieces[:: max(1, len(pieces) // _PIECES)]]
    texts += [f"a {token} b" for token in read.all_special_tokens]
    return built if _ids(built, texts) == _ids(read, texts) else read


def _ids(tokenizer, texts: list[str]) -> list[list[int]] | None:
    try:
        return tokenizer(texts)["input_ids"]
    except Exception:  # a model of subwords that has no token for an unknown one
        return None


def _frame_settings(stated: dict[str, Any]) -> dict[str, Any]:
    """Whether a text begins and ends with a special token, if tokenizer_config.json decides it."""
    told = "add_bos_token" in stated or "add_eos_token" in stated
    if not told or str(stated.get("tokenizer_class")).removesuffix("Fast") not in _FRAMED:
        return {}
    return {
        "add_bos_token": stated.get("add_bos_token", True),
        "add_eos_token": stated.get("add_eos_token", False),
    }


def _take_settings(read: Tokenizer, built: Tokenizer) -> None:
    """The settings of a class, which transformers 4 put above those of the file."""
    if isinstance(read.normalizer, BertNormalizer) and isinstance(built.normalizer, BertNormalizer):
        for name in ("lowercase", "strip_accents", "handle_chinese_chars"):
            setattr(read.normalizer, name, getattr(built.normalizer, name))
    if isinstance(read.pre_tokenizer, ByteLevel) and isinstance(built.pre_tokenizer, ByteLevel):
        read.pre_tokenizer.add_prefix_space = built.pre_tokenizer.add_prefix_space


def check_vocabulary(path: str, tokenizer, source: str) -> None:
    """Raise BadInput if a second model does not read the token ids of `source`."""
    if tokenizer.get_vocab() != load_tokenizer(source).get_vocab():
        raise BadInput(
            f"'{path}': needs the vocabulary of '{source}', whose token ids it reads; choose "
            "another model"
        )


def _unreadable(what: str, path: str, error: Exception) -> BadInput:
    root = Path(path)
    if (root / "config.json").is_file():
        return BadInput(f"'{path}': cannot read its {what}: {brief(error)}")
    if (root / RUN_FILE).is_file():
        best = f", or use {root / 'best'}" if (root / "best").is_dir() else ""
        return BadInput(f"'{path}': an unfinished run; run its command again to finish it{best}")
    for inner in root.glob("0_*/config.json"):
        return BadInput(
            f"'{path}': the oldest layout of sentence-transformers; give {inner.parent}, with the "
            "--pooling that 1_Pooling/config.json names"
        )
    if root.is_dir():
        return BadInput(f"'{path}': has no config.json; give the folder of a model")
    if is_offline_mode() and isinstance(error.__cause__, LocalEntryNotFoundError):
        return BadInput(
            f"'{path}': no such folder, and not in the hub's cache (HF_HUB_OFFLINE is set); give "
            "the folder of a model"
        )
    missing = "no such folder, and not a model on the hub, or it did not answer"
    return BadInput(f"'{path}': {missing}; cannot read its {what}: {brief(error)}")


def usable_length(backbone: PreTrainedModel, tokenizer, stated: int | None = None) -> int:
    """Return how many tokens a sentence may have, by the position table and the tokenizer.

    A `stated` length of the model replaces a shorter one of the tokenizer, as in
    sentence-transformers.

    A table with a padding index begins with unused rows: positions are counted from that index + 1.
    BadInput if the tokenizer has ids without a row in the model's table of tokens.
    """
    table, last = backbone.get_input_embeddings().weight, max(tokenizer.get_vocab().values())
    assert isinstance(table, Tensor)
    if last >= len(table):
        raise BadInput(
            f"the tokenizer has token ids up to {last}, but the model's table {len(table)} rows: "
            "give it the tokenizer it was trained with, or resize it (resize_token_embeddings)"
        )
    limit = max(tokenizer.model_max_length, stated or 0)
    positions = getattr(backbone.config, "max_position_embeddings", None) or -1
    positions = limit if positions == -1 else positions
    unused = 0
    for name, part in backbone.named_modules():
        index = getattr(part, "padding_idx", None)
        if name.endswith("position_embeddings") and index is not None:
            unused = max(unused, index + 1)
    return int(min(positions - unused, limit, NO_LIMIT))


def dropout_rates(config) -> dict[str, float]:
    """Return the dropout rates that a configuration names."""
    return {name: getattr(config, name) for name in _DROPOUT if hasattr(config, name)}


def set_dropout(config, rate: float | None) -> None:
    """Set every dropout rate of a configuration; None keeps the checkpoint's.

    BadInput if it names none.
    """
    rates = dropout_rates(config)
    if rate is not None and not rates:
        raise BadInput(
            f"--dropout {rate}: the configuration of a '{config.model_type}' names no known "
            "dropout rate"
        )
    if rate is not None:
        config.update(dict.fromkeys(rates, rate))
