"""The program, also as ``python -m mergekit_map.cli``."""

import mergekit_map.__main__

mergekit_map.__main__.main()
