"""With the blocks outermost, layers lie a page's content apart instead of a padded page."""

from fuzz.planners.planting import plant

BASE = "native"
KIND = "silent"
REPORT = "https://github.com/vllm-project/vllm/issues/43626"
SEEN_BY = ("M4", "M6", "reference.place")


def apply(planner):
    @plant(planner, "compute_layout_strides")
    def _(original, spec, num_blocks, num_layers, layout, *args, **kwargs):
        layer, *rest = original(spec, num_blocks, num_layers, layout, *args, **kwargs)
        if layout.is_block_outermost and layer == spec.page_size_bytes:
            layer = getattr(spec, "real_page_size_bytes", layer)
        return (layer, *rest)
