"""GPU models: the names of each, and how much memory a program can use on it.

``memory`` is what programs can use on an idle GPU. Drivers before 510 list exactly that
as the total; newer ones list more, and reserve a few hundred MiB of it for themselves.
"""

import re
from collections.abc import Iterator, Mapping, Sequence

import msgspec

from weigh.errors import UsageError, close_names
from weigh.units import GIB, MIB, Bytes


class GpuModel(msgspec.Struct, frozen=True, kw_only=True):
    """One GPU model as a scheduler or NVML knows it.

    ``memory`` is what programs can use of one logical GPU, ``totals`` what drivers
    list; ``nominal`` is the advertised size in GB, ``others`` further sizes in its
    names. ``words`` are its names in lower case without maker and form factor,
    ``sized`` those that identify it only together with its size. ``mig`` is the memory
    per profile.
    """

    name: str
    memory: Bytes
    nominal: int  # GB, as in its name
    words: tuple[str, ...]
    totals: tuple[Bytes, ...] = ()
    others: tuple[int, ...] = ()
    sized: tuple[str, ...] = ()
    mig: dict[str, Bytes] = {}
    profile: str | None = None  # None: a whole GPU


_MAKERS = frozenset(
    ("nvidia", "tesla", "geforce", "quadro", "amd", "radeon", "instinct", "gpu", "tm")
)
_FORMS = re.compile(
    r"(sxm|smx)\d?|pcie?|oam|nvlink|fhhl|hbm\d?e?|generation|edition|server|"
    r"workstation|maxq|max|q|lc|mba|graphics|accelerator"
)
_SIZE = re.compile(r"(\d{1,3})(?:g|gb|gib)")
# as Slurm (a100_1g.5gb), NVML (MIG 1g.5gb) and nvidia-smi (1g.10gb+me) write it
_MIG = re.compile(r"(?:^|[:_\s.-])(?:mig[\s_.-]*)?(\d+g\.\d+gb)(?:\+\w+)?$")
_CLOSE = 0.06  # of a total: switching ECC on or off changes it by as much


def _joined_name_words(gpu_name: str) -> str:
    return "".join(_name_words_and_size(gpu_name)[0])


def _name_words_and_size(gpu_text: str) -> tuple[list[str], int | None]:
    """Split a name into the words that distinguish models, and its size in GB."""
    words: list[str] = []
    size = None
    plain = gpu_text.lower().replace("(tm)", " ").removeprefix("gpu:")
    for word in re.split(r"[\s_/:,()-]+", plain):
        found = _SIZE.fullmatch(word)
        if found:
            size = int(found[1])
        elif word and word not in _MAKERS and not _FORMS.fullmatch(word):
            words.append(word)
    return words, size


# name, GB, and MiB as nvidia-smi and rocm-smi list them on idle GPUs; where the total
# (in `totals`) includes the driver's reserve, that is subtracted as in nvidia-smi -q
_LISTED = """
P4 8 7611 totals=7680
P40 24 22919 totals=23040
P100-12GB 12 12198 totals=12193,12288
P100-16GB 16 16280 totals=16276,16384 names=p100l
V100-16GB 16 16160 totals=16130,16152,16384
V100-32GB 32 32510 totals=32480,32502,32768 names=v100l,v100s
T4 16 15109 totals=15079,15360
RTX2080Ti 11 11019 totals=11016,11264 names=2080ti
TitanRTX 24 24220 totals=24190,24576
# with ECC on; without it 24220 and 48601
RTX6000 24 22698 totals=23040,24220,24576
RTX8000 48 45556 totals=46080,48601,49152
RTX3090 24 24268 totals=24258,24576 names=3090
RTX4090 24 24112 totals=24564 names=4090
RTX5090 32 32109 totals=32607 names=5090
A10 24 22731 totals=23028,24258 names=a10g
# one board is four GPUs; its reserve is that of other GPUs of its size
A16 16 15100 totals=15356 sizes=64
A30 24 24258 totals=24576
# with ECC on; without it 48685
A40 48 45634 totals=46068,48685
A100-40GB 40 40536 totals=40537,40960
A100-80GB 80 81251 totals=81252,81920 names=a100l,a800
A5000 24 24258 totals=24256,24564 names=rtxa5000
A6000 48 48685 totals=45634,48682,49140 names=rtxa6000
L4 24 22478 totals=23034
# no listing was available
L40 48 45383 totals=46068
L40S 48 45383 totals=46068
RTX6000-Ada 48 48640 totals=49140 names=6000ada sized=rtx6000
RTX-PRO-6000 96 95775 totals=97887,97250 names=pro6000,rtxpro6000blackwell
H20 96 97071 totals=97871 sizes=141
H100-80GB 80 81008 totals=81559 names=h800
H100-94GB 94 95236 totals=95830 names=h100nvl sized=h100
H200 141 143071 totals=143771 names=h200nvl
# its name carries the host's memory: GH200 480GB
GH200 96 96768 totals=97871 sizes=120,480
# its reserve is not known
B200 180 183359 sizes=192
# no listing was available
MI100 32 32752
MI210 64 65520
# one board is two GPUs
MI250X 64 65520 names=mi250 sizes=128
MI300X 192 196592
"""
# GiB by MIG profile, which ends with gb
_PROFILES = """
A30 1g.6=5.81 2g.12=11.69 4g.24=23.44
A100-40GB 1g.5=4.75 1g.10=9.62 2g.10=9.62 3g.20=19.5 4g.20=19.5 7g.40=39.25
A100-80GB 1g.10=9.5 1g.20=19.5 2g.20=19.5 3g.40=39.25 4g.40=39.25 7g.80=78.75
RTX-PRO-6000 1g.24=23.12 2g.48=46.5 4g.96=93.38
H100-80GB 1g.10=9.75 1g.20=19.62 2g.20=19.62 3g.40=39.5 4g.40=39.5 7g.80=79
H100-94GB 1g.12=10.62 1g.24=21.5 2g.24=21.5 3g.47=46.12 4g.47=46.12 7g.94=92.5
H200 1g.18=16 1g.35=32.5 2g.35=32.5 3g.71=68 4g.71=68 7g.141=139.5
# no listing available: as on the smaller GPU of 94 GB
GH200 1g.12=10.62 1g.24=21.5 2g.24=21.5 3g.48=46.12 4g.48=46.12 7g.96=92.5
# no listing available: eighths less a tenth, as on the H200
B200 1g.23=20 1g.45=40.5 2g.45=40.5 3g.90=82 4g.90=82 7g.180=178
"""


def _model_rows(table: str) -> Iterator[list[str]]:
    for line in table.strip().splitlines():
        if not line.startswith("#"):
            yield line.split()


def _listed_models() -> Iterator[GpuModel]:
    profiles = {
        name: {
            f"{profile}gb": round(float(gib) * GIB)
            for profile, _, gib in (word.partition("=") for word in words)
        }
        for name, *words in _model_rows(_PROFILES)
    }
    for name, nominal, mib, *words in _model_rows(_LISTED):
        more = {
            key: values.split(",")
            for key, _, values in (word.partition("=") for word in words)
        }
        sized = more.get("sized", [])
        names = {*more.get("names", []), _joined_name_words(name)} - {*sized}
        yield GpuModel(
            name=name,
            memory=int(mib) * MIB,
            nominal=int(nominal),
            words=tuple(sorted(names)),
            totals=tuple(int(total) * MIB for total in (mib, *more.get("totals", []))),
            others=tuple(map(int, more.get("sizes", []))),
            sized=tuple(sized),
            mig=profiles.get(name, {}),
        )


MODELS = tuple(_listed_models())


def profile_of(gpu_name: str) -> str | None:
    """Return the MIG profile in *gpu_name*, such as ``1g.10gb``.

    None for a whole GPU.
    """
    found = _MIG.search(gpu_name.strip().lower())
    return None if found is None else found[1]


def find_gpu_model(
    gpu_name: str, *, sites: Mapping[str, Bytes] | None = None
) -> GpuModel:
    """Return the model with the name *gpu_name*, as a person or scheduler writes it.

    Args:
        gpu_name: such as ``V100-32GB``, ``v100l``, ``NVIDIA A100-SXM4-40GB``,
            ``A100-40GB:1g.5gb`` or ``1g.5gb``, of any case.
        sites: a site's own names, with the memory that programs can use.

    Raises:
        UsageError: several models have that name, or none; lists the nearest.
    """
    known = _site_model(gpu_name, sites or {})
    if known is not None:
        return known
    found = list(_possible_models(gpu_name))
    if len(found) == 1:
        return found[0]
    if found:
        names = " or ".join(model.name for model in found)
        raise UsageError(f"which {gpu_name}? write {names}")
    raise UsageError(_unknown_model_text(gpu_name, sites or {}))


def gpu_models_called(
    gpu_name: str, *, sites: Mapping[str, Bytes] | None = None
) -> tuple[GpuModel, ...]:
    """Return every model that *gpu_name* may mean, the one with the least memory first.

    ``p100`` may have 12 or 16 GB: what fits the smaller one fits both.

    Raises:
        UsageError: no model has that name; lists the nearest.
    """
    found = list(_possible_models(gpu_name))
    if len(found) < 2 or _site_model(gpu_name, sites or {}):  # noqa: PLR2004 - no choice
        return (find_gpu_model(gpu_name, sites=sites),)
    return tuple(sorted(found, key=lambda model: model.memory))


def model_of_nvml_name(
    nvml_name: str, memory_total: Bytes | None = None
) -> GpuModel | None:
    """Return the model of a GPU by its name and memory in NVML; None if unknown.

    *memory_total* decides between sizes. A total that no driver lists, for example with
    ECC switched off, becomes the model's memory.
    """
    found = list(_possible_models(nvml_name))
    if memory_total is not None:
        # a total far from all known ones belongs to another model of the same name
        found = [model for model in found if _is_close(model, memory_total)]
        if found:
            return _with_total(_nearest_size(found, memory_total), memory_total)
    return found[0] if len(found) == 1 else None


def is_gpu_of_kind(
    nvml_name: str, memory_total: Bytes | None, kind: str, sites: Mapping[str, Bytes]
) -> bool:
    """Return whether a GPU of NVML's name may be of the *kind* of a scheduler's."""
    model = model_of_nvml_name(nvml_name, memory_total)
    if model is None:  # a new one: kinds are often a part of the name
        return _joined_name_words(kind) in _joined_name_words(nvml_name)
    try:
        return any(
            model.name == one.name for one in gpu_models_called(kind, sites=sites)
        )
    except UsageError:  # a name that only the site uses
        return False


def _site_model(gpu_name: str, sites: Mapping[str, Bytes]) -> GpuModel | None:
    for written, memory in sites.items():
        if _same_name(written, gpu_name):
            found = list(_possible_models(written))
            if not found:
                return GpuModel(
                    name=written, memory=memory, nominal=round(memory / GIB), words=()
                )
            model = _nearest_size(found, memory)
            return msgspec.structs.replace(model, memory=memory, totals=(memory,))
    return None


def _same_name(first_name: str, second_name: str) -> bool:
    return first_name.casefold() == second_name.casefold() or (
        # two slices are equal only by their whole name: words drop the profile
        _MIG.search(first_name.lower()) is None
        and _MIG.search(second_name.lower()) is None
        and _name_words_and_size(first_name) == _name_words_and_size(second_name)
        and _name_words_and_size(first_name)[0] != []
    )


def _possible_models(gpu_name: str) -> Iterator[GpuModel]:
    """Yield the models that *gpu_name* may mean.

    The smallest for a bare MIG profile.
    """
    profile = _MIG.search(gpu_name.strip().lower())
    if profile is None:
        yield from _unsliced_models(gpu_name)
        return
    parent = gpu_name.strip()[: profile.start()]
    # a bare profile has no parent to narrow the choice
    models = list(_unsliced_models(parent)) if parent.strip(" :-_") else list(MODELS)
    slices = [
        _sliced_model(model, profile[1]) for model in models if profile[1] in model.mig
    ]
    if parent.strip(" :-_"):
        yield from slices
    elif slices:  # the profile names its size: GPUs differ by a few per cent
        yield min(slices, key=lambda model: model.memory)


def _unsliced_models(gpu_name: str) -> Iterator[GpuModel]:
    words, size = _name_words_and_size(gpu_name)
    joined = "".join(words)
    for model in MODELS:
        fits = size is None or size == model.nominal or size in model.others
        if fits and (
            joined in model.words or (size is not None and joined in model.sized)
        ):
            yield model


def _sliced_model(model: GpuModel, profile: str) -> GpuModel:
    memory = model.mig[profile]
    return msgspec.structs.replace(
        model,
        name=f"{model.name}:{profile}",
        memory=memory,
        totals=(memory,),
        nominal=int(profile.partition(".")[2].removesuffix("gb")),
        mig={},
        profile=profile,
    )


def _nearest_size(models: Sequence[GpuModel], memory: Bytes) -> GpuModel:
    return min(models, key=lambda model: _memory_distance(model, memory))


def _memory_distance(model: GpuModel, memory: Bytes) -> Bytes:
    return min(abs(total - memory) for total in model.totals)


def _is_close(model: GpuModel, memory: Bytes) -> bool:
    return _memory_distance(model, memory) <= _CLOSE * memory


def _with_total(model: GpuModel, total: Bytes) -> GpuModel:
    """Return *model* with memory *total*, unless that is one that drivers list."""
    # nvidia-smi lists whole MiB, NVML bytes: less than one apart is the same total
    if any(abs(total - known) < MIB for known in model.totals):
        return model
    return msgspec.structs.replace(model, memory=total)


def _unknown_model_text(gpu_name: str, sites: Mapping[str, Bytes]) -> str:
    words, size = _name_words_and_size(gpu_name)
    joined = "".join(words)
    sizes = [model for model in MODELS if size and joined in model.words]
    if sizes:
        names = " or ".join(model.name for model in sizes)
        return f"no {gpu_name!r}: there is {names} (or give --gpu-memory)"
    known = {model.name.lower(): model.name for model in MODELS}
    known |= {written.lower(): written for written in sites}
    near = close_names(gpu_name.lower(), known, n=3, cutoff=0.5)
    offer = f"did you mean {' or '.join(known[n] for n in near)}?" if near else ""
    return (
        f"no such GPU: {gpu_name!r} ({offer or 'give its memory: --gpu-memory 24GiB'})"
    )
