"""``weigh top`` and ``gpus``: what runs now, and on which cards."""
