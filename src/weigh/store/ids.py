"""Names of records: twelve lower-case hexadecimal characters."""

import os

LENGTH = 12
SHORTEST_PREFIX = 4
_HEX = frozenset("0123456789abcdef")


def new_id() -> str:
    """Draw a fresh id; 48 random bits keep a million records apart."""
    return os.urandom(LENGTH // 2).hex()


def content_id(content: bytes) -> str:
    """Derive the id of something imported, so that importing it twice is seen."""
    from hashlib import blake2b  # noqa: PLC0415 - hashing is rare, start-up is not

    return blake2b(content, digest_size=LENGTH // 2).hexdigest()


def is_id(text: str) -> bool:
    """Say whether *text* is a whole id, and so safe as a file name."""
    return len(text) == LENGTH and _HEX.issuperset(text)


def is_prefix(text: str) -> bool:
    """Say whether *text* is long enough, and of the letters, to stand for an id."""
    return SHORTEST_PREFIX <= len(text) <= LENGTH and _HEX.issuperset(text)
