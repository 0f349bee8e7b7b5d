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
