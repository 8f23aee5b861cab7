"""What several tests of the models share."""

import pytest

SHORT = """method simcse dev none test_tasks none use_cpu true disable_tqdm true pooling avg
    max_steps 1 per_device_train_batch_size 4""".split()


@pytest.fixture(params=["tiny_bert", "tiny_roberta"])
def folder(request):
    """Both tiny models, one after the other."""
    return str(request.getfixturevalue(request.param))


@pytest.fixture
def short_run(text_file, tmp_path):
    """Arguments of one step of run_unsup.py, from a folder into `run`; keywords are flags."""

    def arguments(folder, **flags):
        values = dict(zip(SHORT[::2], SHORT[1::2], strict=True))
        values |= {
            "model_name_or_path": folder,
            "train_file": text_file,
            "output_dir": tmp_path / "run",
        }
        return [
            f"--{name}={value}"
            for name, value in (values | {"cache_dir": tmp_path / "cache"} | flags).items()
        ]

    return arguments
