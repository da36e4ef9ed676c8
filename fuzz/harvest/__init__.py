"""Real models in, cases out: what vLLM's own model classes say their layers cache."""
