"""Flags of other repositories and of the Trainer that this project does not have, and what to use.

They are the tables of docs/from_the_old_repositories.md, and what the error for such a flag says.
"""

_CACHE = "not needed: a text is tokenised once and kept in `--cache_dir`"

# Names of earlier releases of this project: flags, methods, configurations and studies.
RENAMED = {
    "--mask_recipe": "--mask_scheme",
    "--queue_size": "--negatives",  # of the memory bank; others have a queue
    "--span_least": "--crop_least",
    "--span_most": "--crop_most",
    "spans": "cropping",
    "spans-bert-base": "cropping-bert-base",
    "spans-xlm-roberta-base": "cropping-xlm-roberta-base",
    "aux-read-bert-base": "aux-retromae-bert-base",
    "infocse-read-bert-base": "infocse-retromae-bert-base",
    "aux-gap-mini": "conditioning-mini",
    "infocse-read-mini": "infocse-retromae-mini",
    "infocse-factorial-six-mini": "infocse-factorial-mini",
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
    "group_by_length": "not needed: `--seed` alone determines the order of the text",
}

# Flags of transformers' Trainer that it would ignore or override here.
TRAINER = {
    "load_best_model_at_end": "`--dev stsb` (the default); the best model is the result anyway",
    "metric_for_best_model": "`--dev stsb` (the default), or `--dev_file` with your own pairs",
    "do_eval": "`--dev`",
    "do_predict": "`--test_tasks`",
    "data_seed": "`--seed`",
    "auto_find_batch_size": "`--chunk_size`, which keeps the batch and its negatives",
    "resume_from_checkpoint": "the same command again, which resumes",
    **dict.fromkeys(
        ("bf16_full_eval", "fp16_full_eval"), "`--bf16`: evaluation computes as training does"
    ),
    "dataloader_persistent_workers": "not to be had: a resumed run would draw other dropout",
    **dict.fromkeys(
        "push_to_hub hub_model_id hub_strategy hub_token hub_private_repo hub_always_push "
        "hub_revision".split(),
        "`python -m export RUN --output DIR --push_to_hub REPO`",
    ),
    **dict.fromkeys(
        "train_sampling_strategy length_column_name".split(),
        "not needed: `--seed` alone determines the order of the text",
    ),
    **dict.fromkeys(
        "remove_unused_columns label_names".split(),
        "not needed: `--text_column` names what is read",
    ),
    **dict.fromkeys(
        "per_device_eval_batch_size eval_accumulation_steps eval_do_concat_batches "
        "eval_use_gather_object batch_eval_metrics include_for_metrics "
        "prediction_loss_only".split(),
        "not needed: evaluation makes its own batches",
    ),
    **dict.fromkeys(
        "greater_is_better eval_on_start do_train label_smoothing_factor use_cache "
        "average_tokens_across_devices include_num_input_tokens_seen save_only_model "
        "enable_jit_checkpoint dataloader_prefetch_factor dataloader_in_order "
        "dataloader_multiprocessing_context".split(),
        "not needed: it would change nothing here",
    ),
}

# evaluation.py
EVALUATION = {
    "model_name_or_path": "the first argument",
    "pooler": "`--pooling` (for plain encoders; a run stores its pooling)",
    "task_set": "`--tasks sts`, `--tasks transfer` or `--tasks sts transfer`",
}
