"""``weigh top``: what runs now, and on which GPUs."""
