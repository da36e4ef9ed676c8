"""Code that runs under a planner's interpreter, in a process of its own, and imports vLLM."""
