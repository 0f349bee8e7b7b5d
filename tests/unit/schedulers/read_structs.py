"""What a reader returned, as text."""

from collections.abc import Iterator

import msgspec


def written(found: object) -> str:
    """Return an answer as a row states it: of a struct, the fields that are known."""
    if isinstance(found, tuple | Iterator):
        some = tuple(found)
        is_flat = all(isinstance(one, str | int | float) for one in some)
        return (" " if is_flat else "; ").join(map(written, some))
    if isinstance(found, dict):  # of each element of each job
        jobs = ((job, *one) for job, ended in found.items() for one in ended.items())
        return "; ".join(f"{job}_{number} {written(one)}" for job, number, one in jobs)
    if isinstance(found, msgspec.Struct):
        known = msgspec.structs.asdict(found).items()
        return " ".join(f"{k}={_field(v)}" for k, v in known if v not in (None, ()))
    return str(found)


def _field(value: object) -> str:
    """Return a field's value; in brackets where it has fields of its own."""
    parts = value if isinstance(value, tuple) else (value,)
    if any(isinstance(part, msgspec.Struct) for part in parts):
        return "".join(f"[{written(part)}]" for part in parts)
    return written(value)
