"""Push an export to the Hugging Face hub with the hub's own client.

`HF_ENDPOINT` (a mirror or private hub), `HF_TOKEN` or `hf auth login`, and HF_HUB_OFFLINE work as
usual.
"""

from pathlib import Path

from huggingface_hub import HfApi
from huggingface_hub.errors import HTTPError

from common.errors import BadInput, brief

# Files of an earlier export that would change how the model loads or searches if this export lacks
# them.
REPLACED = """modules.json sentence_bert_config.json config_sentence_transformers.json *_Pooling/*
    *_Dense/* *_WordWeights/* *_WeightedLayerPooling/* model*.safetensors* onnx/*
    search.json special_tokens_map.json added_tokens.json adapter_config.json""".split()


def push(folder: Path, repo: str, private: bool) -> str:
    """Create the repository if needed, upload every file, delete leftovers.

    Returns the URL of the commit.

    With the library's xet storage a large folder may take several commits. An existing repository
    keeps its visibility.

    Raises:
        BadInput: the hub refuses or cannot be reached; the folder is kept.
    """
    api = HfApi()
    try:
        api.create_repo(repo, private=private or None, exist_ok=True)
        commit = api.upload_folder(
            repo_id=repo, folder_path=folder, commit_message="Export", delete_patterns=REPLACED
        )
    except (HTTPError, OSError, RuntimeError, ValueError) as error:
        cause = brief(error.__cause__ or error)  # more specific than "Error while uploading"
        again = f"the export in {folder} is complete: `hf upload {repo} {folder}` retries"
        raise BadInput(
            f"cannot push to {repo}: {cause}; HF_TOKEN needs write access; {again}"
        ) from error
    return str(commit.commit_url)
