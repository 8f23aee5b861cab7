"""Flags of other repositories and of the Trainer that this project does not have, and what to use.

They are the tables of docs/from_the_old_repositories.md, and what the error for such a flag says.
"""

_LENGTHS = "not needed: `--seed` alone determines the order of the text"
_BATCHES = "not needed: evaluation makes its own batches"
_HUB = "`python -m export RUN --output DIR --push_to_hub REPO`"
_CACHE = "not needed: a text is tokenised once and kept in `--cache_dir`"

# Names of earlier releases of this project: flags, methods, configurations and studies.
RENAMED = {
    "--mask_recipe": "--mask_scheme",
    "--queue_size": "--negatives",  # of the memory bank; others have a queue
    "--span_least": "--crop_least",
    "--span_most": "--crop_most",
    "--span_tokens": "--crop_tokens",
    "spans": "cropping",
    "spans-bert-base": "cropping-bert-base",
    "spans-xlm-roberta-base": "cropping-xlm-roberta-base",
    "aux-read-bert-base": "aux-retromae-bert-base",
    "infocse-read-bert-base": "infocse-retromae-bert-base",
    "aux-gap-mini": "conditioning-mini",
    "infocse-read-mini": "infocse-retromae-mini",
}

# Scripts of SimCSE, DiffCSE, InfoCSE and Condenser, and earlier releases of transformers.
TRAINING = {
    "max_seq_length": "`--max_length`",
    "temp": "`--temperature`",
    "pooler_type": "`--pooling`: `cls_before_pooler` for `cls` with `mlp_only_train`; `cls` (keeps "
    "the head), `avg`, `avg_top2`, `avg_first_last`, `avg_embedding_last` (SimCSE's old "
    "first-last)",
    "mlp_only_train": "`--pooling cls_before_pooler` with `--projection linear_tanh`, the default",
    "batchnorm": "`--projection batch_norm`",
    "do_mlm": "`--method infocse`, or `--method simcse_mlm` for SimCSE with MLM",
    "mlm_weight": "`--aux_weight` of `--method infocse`; `--mlm_weight` of `--method simcse_mlm`",
    "mlm_probability": "`--mask_rate`",
    "n_head_layers": "`--head_layers`",
    "mlm_eval": "`--aux_frozen_eval true` (the default; off in the large script)",
    "late_mlm": "not needed: stage 1 always trains both losses",
    "lambda_weight": "`--rtd_weight` of `--method diffcse`",
    "masking_ratio": "`--rtd_mask_rate` of `--method diffcse`",
    "generator_name": "`--generator` of `--method diffcse`",
    "eval_transfer": "`python -m eval RUN --tasks transfer`",
    "overwrite_output_dir": "another `--output_dir`: no run replaces another",
    "evaluation_strategy": "`--eval_strategy`",
    "warmup_ratio": "`--warmup_steps 0.1` (values below 1 are a share)",
    "pad_to_max_length": "not needed: batches are padded to their longest text at most",
    "preprocessing_num_workers": _CACHE,
    "overwrite_cache": _CACHE,
    "dataset_config_name": "`--dataset_name OWNER/NAME CONFIG`",
    "no_cuda": "`--use_cpu true`",
    "per_gpu_train_batch_size": "`--per_device_train_batch_size`",
    "group_by_length": _LENGTHS,
}

# Flags of transformers' Trainer that it would ignore or override here.
TRAINER = {
    "load_best_model_at_end": "`--dev stsb` (the default); the best model is the result anyway",
    "metric_for_best_model": "`--dev stsb` (the default), or `--dev_file` with your own pairs",
    "greater_is_better": "not needed: the highest dev score is the best",
    "eval_on_start": "not needed: the checkpoint is scored first",
    "do_train": "not needed: a run trains",
    "do_eval": "`--dev`",
    "do_predict": "`--test_tasks`",
    "data_seed": "`--seed`",
    "train_sampling_strategy": _LENGTHS,
    "length_column_name": _LENGTHS,
    "remove_unused_columns": "not needed: `--text_column` names what is read",
    "label_names": "not needed: `--text_column` names what is read",
    "label_smoothing_factor": "not there: no loss of these methods has it",
    "average_tokens_across_devices": "not needed: losses are means over all processes",
    "auto_find_batch_size": "`--chunk_size`, which keeps the batch and its negatives",
    "per_device_eval_batch_size": _BATCHES,
    "eval_accumulation_steps": _BATCHES,
    "eval_do_concat_batches": _BATCHES,
    "eval_use_gather_object": _BATCHES,
    "batch_eval_metrics": _BATCHES,
    "include_for_metrics": _BATCHES,
    "prediction_loss_only": _BATCHES,
    "use_cache": "not needed: an encoder has no cache of keys and values",
    "include_num_input_tokens_seen": "not needed: every line of log.jsonl has `tokens`",
    "resume_from_checkpoint": "the same command again, which resumes",
    "save_only_model": "not there: a checkpoint is what a run resumes from",
    "enable_jit_checkpoint": "not needed: a run that gets a signal saves a checkpoint",
    "push_to_hub": _HUB,
    "hub_model_id": _HUB,
    "hub_strategy": _HUB,
    "hub_token": _HUB,
    "hub_private_repo": _HUB,
    "hub_always_push": _HUB,
    "hub_revision": _HUB,
}

# evaluation.py
EVALUATION = {
    "model_name_or_path": "the first argument",
    "pooler": "`--pooling` (for plain encoders; a run stores its pooling)",
    "task_set": "`--tasks sts`, `--tasks transfer` or `--tasks sts transfer`",
}
