"""``python -m mergekit_map.cli``: the program ``mergekit-map``."""

from mergekit_map.cli.main import main

main()
