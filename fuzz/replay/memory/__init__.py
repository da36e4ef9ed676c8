"""Memory replay: every page of a plan is painted through its strides and read back.

``pools`` normalises a plan to *pools*, one for each worker; ``shrink`` makes a small pool of a large one; ``paint``
paints it byte for byte; ``check`` sets the painter against the interval arithmetic of ``oracles.placement``: two
checkers that share no arithmetic and must agree.
"""
