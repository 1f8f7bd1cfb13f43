"""nanoset_ref: how tokens reach the GPUs in LLM pre-training."""
