"""The program ``mergekit-map``, which handles signals from its first import on."""

from mergekit_map.utils.shutdown import handle_signals

handle_signals()

from mergekit_map.cli.main import main  # noqa: E402

if __name__ == "__main__":
    main()
