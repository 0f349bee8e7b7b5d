"""What a sourced file does in a batch shell, `set -u`, and paths of one machine."""

import pytest
from some_scripts import HOME, qsub, sbatch

HOOK = 'eval "$(conda shell.bash hook)"\n'
GUARDS = {
    "case": "case $- in\n  *i*) ;;\n  *) return ;;\nesac\n",
    "case of one line": "case $- in *i*) ;; *) return;; esac\n",
    "test": '[ -z "$PS1" ] && return\n',
    "negated test": "[[ $- == *i* ]] || return\n",
    "if": 'if [[ -z "${PS1-}" ]]; then\n  return\nfi\n',
    "terminal": "shopt -s histappend\n[ -t 0 ] || return\n",
}
ACTIVATES = "source ~/.bashrc\nconda activate tools\n"


def of_bashrc(text: str, body: str = ACTIVATES, **files: str) -> dict[str, object]:
    texts = {f"{HOME}/.bashrc": text}
    texts |= {f"{HOME}/.{name}": one for name, one in files.items()}
    return dict(sbatch(body=body, texts=texts))


@pytest.mark.parametrize("guard", GUARDS.values(), ids=GUARDS.keys())
def test_a_hook_behind_an_early_return_is_none(guard: str) -> None:
    found = sbatch(
        body=ACTIVATES, texts={f"{HOME}/.bashrc": f"umask 022\n{guard}{HOOK}"}
    )

    assert "~/.bashrc returns before the hook" in found["conda"].effect
    assert found["conda"].severity == "problem"


@pytest.mark.parametrize("guard", GUARDS.values(), ids=GUARDS.keys())
def test_a_hook_before_an_early_return_is_one(guard: str) -> None:
    assert "conda" not in of_bashrc(HOOK + guard)


@pytest.mark.parametrize(
    "text",
    [
        HOOK,
        ". ~/.conda_setup\n",  # not known
        "[ -f /etc/x ] || return\n" + HOOK,  # for another reason
        "case $TERM in\n  dumb) return ;;\nesac\n" + HOOK,
        "case $- in\n  *i*) PS1=x ;;\nesac\n[ -n x ]\n" + HOOK,
        "if then $(\n",
    ],
)
def test_a_file_that_may_give_conda_is_no_finding(text: str) -> None:
    assert "conda" not in of_bashrc(text)


def test_a_file_without_conda_and_one_that_reads_it_give_none() -> None:
    assert "conda" in of_bashrc("export EDITOR=vi\n")
    profile = "if [ -f ~/.bashrc ]; then . ~/.bashrc; fi\n"
    body = "source ~/.bash_profile\nconda activate tools\n"
    assert "conda" in of_bashrc(GUARDS["case"] + HOOK, body, bash_profile=profile)
    assert "conda" not in of_bashrc(HOOK, body, bash_profile=profile)


def test_the_way_out_is_the_hook_that_the_file_would_have_called() -> None:
    text = (
        GUARDS["case"]
        + "__conda_setup=\"$('/opt/mf/bin/conda' 'shell.bash' 'hook')\"\n"
    )

    found = sbatch(body=ACTIVATES, texts={f"{HOME}/.bashrc": text})["conda"]

    assert found.cure == "source /opt/mf/etc/profile.d/conda.sh before it"


def test_module_behind_an_early_return_is_not_found() -> None:
    body = "source ~/.bashrc\nmodule load gcc\n"

    assert "module" not in qsub(body=body)
    assert "module" in qsub(body=body, texts={f"{HOME}/.bashrc": GUARDS["test"]})


@pytest.mark.parametrize(
    "body",
    [
        "set -u\nmodule load gcc\n",
        "set -euo pipefail\nsource /opt/c/etc/profile.d/conda.sh\nconda activate x\n",
        "set -o nounset\nsource ~/.bashrc\n",
        "set -eu\nsource /opt/intel/oneapi/setvars.sh\n",
    ],
)
def test_strict_mode_before_scripts_of_others_is_noted(body: str) -> None:
    found = sbatch(body=body)["strict-mode"]

    assert found.effect.startswith("set -u ends the job where")
    assert found.severity == "note"


@pytest.mark.parametrize(
    "body",
    [
        "set -eo pipefail\nmodule load gcc\n",
        "set -u\nset +u\nmodule load gcc\nset -u\n",
        "module load gcc\nset -u\n",
        "set -u\nsource venv/bin/activate\n",
        "set -u\nmodule list\n",
    ],
)
def test_strict_mode_without_scripts_of_others_is_none(body: str) -> None:
    assert "strict-mode" not in sbatch(body=body)


@pytest.mark.parametrize(
    "body",
    [
        "cd /tmp/ada/proj\nmake\n",
        "python3 /var/tmp/fit.py\n",
        "sort < /dev/shm/in.txt\n",
        "/tmp/ada/bin/tool x\n",
        "source /tmp/venv/bin/activate\n",
        "tar xzf /tmp/ada/in.tgz\n",
    ],
)
def test_a_path_of_the_machine_alone_is_noted(body: str) -> None:
    assert "a node has its own /" in sbatch(body=body)["node-local"].effect


def test_scratch_is_noted_only_where_it_is_this_machine_s_own_disk() -> None:
    path, body = "/scratch/ada/in.csv", "python3 /scratch/ada/in.csv\n"
    here = {"paths": {path: "file"}}

    assert "node-local" in sbatch(body=body, local_disks={path: True}, **here)
    assert "node-local" not in sbatch(body=body, local_disks={path: False}, **here)
    assert "node-local" not in sbatch(body=body, paths={path: "missing"})


@pytest.mark.parametrize(
    "body",
    [
        "mkdir -p /tmp/ada\ncd /tmp/ada\n",
        "cp -r data /tmp/ada\ncd /tmp/ada/data\n",
        "git clone https://x/y /tmp/y && cd /tmp/y\n",
        "cd $TMPDIR/x\n",
        "python3 fit.py --out /tmp/ada/x\n",
        "cd /tmp\n",
    ],
)
def test_a_path_that_the_job_makes_is_none_of_the_machine_s(body: str) -> None:
    assert "node-local" not in sbatch(body=body)
