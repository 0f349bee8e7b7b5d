"""``weigh records`` and ``weigh compare``: stored records, and how runs differ."""
