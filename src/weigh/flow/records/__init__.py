"""``weigh records`` and ``compare``: what was measured."""
