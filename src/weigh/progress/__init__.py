"""From what a program prints or tells of itself to how far it is and when it ends."""
