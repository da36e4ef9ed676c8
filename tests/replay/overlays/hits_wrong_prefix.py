"""A request whose block hashes know the place of a token only, so that every prefix looks like any other."""

from vllm.v1.core import kv_cache_utils


def apply(planner):
    make = kv_cache_utils.get_request_block_hasher

    def careless(hash_block_size, hash_function):
        exact = make(hash_block_size, hash_function)

        def hashes(request):
            first = len(request.block_hashes)
            count = len(exact(request))
            return [hash_function(("at", first + n)) for n in range(count)]

        return hashes

    kv_cache_utils.get_request_block_hasher = careless
