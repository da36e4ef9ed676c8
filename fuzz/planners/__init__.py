"""A *planner* is a tree of vLLM plus overlays plus an interpreter, addressable by a short string.

``address`` parses the string, ``trees`` turns it into folders on disk, ``process`` runs it in its own process,
``worker`` is what runs there. Only ``worker`` imports vLLM.
"""
