"""With the layers outermost, blocks are not padded to the alignment that a backend asks for."""

from fuzz.planners.planting import plant

BASE = "native"
KIND = "silent"
REPORT = ""
SEEN_BY = ("M7", "reference.place")


def apply(planner):
    @plant(planner, "_get_layer_block_stride")
    def _(_original, spec):
        return spec.page_size_bytes
