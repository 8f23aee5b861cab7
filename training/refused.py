"""Flags of transformers that must keep their defaults here, and why; --help_all leaves them out."""

NO_EFFECT = frozenset(
    """do_train do_eval do_predict per_device_eval_batch_size eval_accumulation_steps eval_do_concat_batches
    eval_use_gather_object batch_eval_metrics prediction_loss_only label_names length_column_name use_cache
    fsdp_config liger_kernel_config restore_callback_states_from_checkpoint hub_model_id hub_strategy
    hub_revision hub_always_push""".split()
)
REFUSED = {
    "eval_strategy": "the dev score is computed every --eval_steps steps, and with --dev none never",
    "train_sampling_strategy": "the sentences of a batch are each other's negatives",
    "average_tokens_across_devices": "a loss is a mean over the targets of all processes",
    "dataloader_in_order": "another order of batches would be a different run",
    "remove_unused_columns": "the collator creates the columns",
    "ddp_broadcast_buffers": "the processes' buffers agree anyway",
    "logging_nan_inf_filter": "a loss that is not finite stops the run",
    "dataloader_drop_last": "a smaller last batch has fewer negatives",
    "greater_is_better": "the dev score is better when it is higher",
    "fsdp": "not supported: accelerate's data parallelism is",
    "deepspeed": "not supported: accelerate's data parallelism is",
    "parallelism_config": "not supported: accelerate's data parallelism is",
    "auto_find_batch_size": "the batch supplies the negatives, so another size is a different experiment",
    "accelerator_config": "the distribution of batches over processes is fixed",
    "data_seed": "--seed determines the order of the text too",
    "label_smoothing_factor": "not part of the papers' losses",
    "dataloader_persistent_workers": "a resumed run would draw different dropout masks than an uninterrupted one",
    "load_best_model_at_end": "not needed: the best model is kept separately and becomes the result",
    "metric_for_best_model": "use --dev or --dev_file to select the metric",
    "include_num_input_tokens_seen": "tokens are logged anyway and would be counted twice",
    "neftune_noise_alpha": "only for language models",
    "enable_jit_checkpoint": "signals are handled here, after the current step",
    "eval_on_start": "a resumed run would evaluate more often; use `python -m eval` on the start",
    "resume_from_checkpoint": "not needed: the same command resumes from the newest valid checkpoint",
    "push_to_hub": "would upload the whole run folder with pickles and paths; use `python -m export --push_to_hub`",
    "hub_token": "would be written to run.json; set HF_TOKEN, and use `python -m export --push_to_hub`",
    "bf16_full_eval": "evaluation has the precision of --bf16",
    "fp16_full_eval": "evaluation has the precision of --bf16",
    "save_on_each_node": "all nodes of a run share one disk",
    "save_only_model": "a run could not resume from such a checkpoint",
    "ignore_data_skip": "a resumed run would see different batches than an uninterrupted one",
    "use_liger_kernel": "not supported",
    **dict.fromkeys(NO_EFFECT, "has no effect here"),
}
