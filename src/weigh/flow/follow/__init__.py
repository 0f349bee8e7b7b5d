"""Follow submitted jobs: ``weigh status``, ``logs``, ``cancel`` and ``resume``."""
