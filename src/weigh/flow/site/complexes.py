"""A Grid Engine site's words for GPUs and the like: ``[cluster.gridengine]``.

Each site makes up its complexes; Slurm's words are the same everywhere.
"""

import re
from collections.abc import Mapping, Sequence

import msgspec

from weigh.errors import FormatError
from weigh.flow.site.ask import Ask, ask_all
from weigh.model.complexes import Complexes
from weigh.model.job import Wanted
from weigh.scheduler import gridengine, gridengine_limits, gridengine_view

TABLE = "gridengine"
_WORD = re.compile(r"[A-Za-z][\w.-]*", re.ASCII)
_CPUS = re.compile(r"(?:n|num)_?cpus?|cpus|(?:n|num)_?cores")
_MOST = 50  # parallel environments that are looked into


def in_site_words(wanted: Wanted, kind: str, site: Mapping[str, object]) -> Wanted:
    """Have a job ask in the words of the site file's ``[cluster]``.

    Raises:
        FormatError: they are none; names the key.
    """
    if kind != gridengine.NAME or TABLE not in site:
        return wanted
    return msgspec.structs.replace(wanted, complexes=read_complexes(site[TABLE]))


def read_complexes(table: object) -> Complexes:
    """Read the table; what it does not name has its usual name.

    Raises:
        FormatError: a key or a value is none; names it.
    """
    try:
        words = msgspec.convert(table, Complexes)
    except msgspec.ValidationError as error:
        known = ", ".join(Complexes.__struct_fields__)
        raise FormatError(f"cluster.{TABLE}: {error} (it has {known})") from error
    for name in Complexes.__struct_fields__:
        word = getattr(words, name)
        if not _WORD.fullmatch(word):
            raise FormatError(f"cluster.{TABLE}.{name}: no word of a cell: {word!r}")
    return words


def find_complexes(env: Mapping[str, str], ask: Ask) -> dict[str, str]:
    """Ask the cell for its words; those that it has none for are left out."""
    commands = (gridengine_view.COMPLEXES, gridengine_limits.PARALLEL)
    complexes, listed = ask_all(commands, env=env, ask=ask)
    consumed = gridengine_limits.consumables(complexes.stdout)
    known = gridengine_limits.requestable(complexes.stdout) or ()
    found = {
        "gpus": _first([name for name in consumed if gridengine_view.is_gpu(name)]),
        "gpu_type": _first([one for one in known if gridengine_view.is_gpu_type(one)]),
        "cpus": _first([name for name in known if _CPUS.fullmatch(name.lower())]),
        "parallel": _first(_on_one_node(listed.stdout.split(), env, ask)),
    }
    return {key: word for key, word in found.items() if word is not None}


def _on_one_node(names: Sequence[str], env: Mapping[str, str], ask: Ask) -> list[str]:
    """Name the parallel environments whose slots are all on one node."""
    asked = [name for name in names if _WORD.fullmatch(name)][:_MOST]
    argvs = [gridengine_limits.parallel_argv(name) for name in asked]
    replies = ask_all(argvs, env=env, ask=ask)
    return [
        name
        for name, reply in zip(asked, replies, strict=True)
        if gridengine_limits.is_on_one_node(reply.stdout)
    ]


def _first(names: Sequence[str]) -> str | None:
    """Choose: the usual word where it is among them."""
    usual = {getattr(Complexes(), name) for name in Complexes.__struct_fields__}
    return next((name for name in names if name in usual), next(iter(names), None))
