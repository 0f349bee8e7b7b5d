"""What holds for every test."""

from hypothesis import settings

# a busy machine is no fault of the code's: examples may take their time
settings.register_profile("weigh", deadline=None)
settings.load_profile("weigh")
