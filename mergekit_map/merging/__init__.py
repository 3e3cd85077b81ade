"""The merge itself, as mergekit makes it.

Importing it registers the ``map_*`` methods with mergekit.
"""

from mergekit_map.merging.methods import register_map_methods

register_map_methods()
