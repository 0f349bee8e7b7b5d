"""``weigh status``, ``logs``, ``cancel`` and ``resume``."""
