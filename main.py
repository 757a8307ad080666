"""Entry point of an uninstalled checkout: ``python main.py`` opens the window, ``python main.py run …`` is headless."""

from explorer.entry import main

if __name__ == "__main__":
    raise SystemExit(main())
