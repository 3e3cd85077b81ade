"""Merging as mergekit does it; importing this registers the ``map_*`` methods."""

from mergekit_map.merging.methods import register_map_methods

register_map_methods()
