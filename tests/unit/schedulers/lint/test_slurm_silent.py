"""The rows of the table of sbatch's mistakes: each is caught before submission."""

import msgspec
import pytest
from some_limits import SLURM, idle_node
from some_scripts import of_slurm, sbatch, stated

from weigh.model.cluster import UNTYPED
from weigh.model.lint import CommandPlace
from weigh.units import GIB

NO = "refused"


def test_gpus_without_a_type_may_be_of_any() -> None:
    nodes = (idle_node(GIB, ("short",), UNTYPED),)
    limits = msgspec.structs.replace(SLURM, nodes=nodes)
    assert "gpus-beyond-node" not in sbatch("--gres=gpu:v100:2", limits=limits)


def test_a_directive_that_goes_on_in_the_next_line_ends_them_all() -> None:
    text = "#!/bin/bash\n#SBATCH --mem=8G \\\n--time=5\n#SBATCH -c 4\nhostname\n"
    assert "directive-after-command" in of_slurm(text)


@pytest.mark.parametrize(
    "text",
    [
        "# sbatch --array=1-9 job.sh\n",
        "# Slurm - the basics\n",
        "# BATCH size\n",
        "# SBATCH\n",
        "# sbach --mem --time\n",
        "cat <<EOF > job.sh\n#!/bin/bash\n#SBATCH --mem=8G\nEOF\nsbatch job.sh\n",
    ],
)
def test_prose_and_other_scripts_are_no_directives(text: str) -> None:
    found = of_slurm(f"#!/bin/bash\n{text}hostname\n")
    assert "directive-after-command" not in found
    assert {one.severity for one in found.values()} <= {"note"}


def test_a_missing_interpreter_fails_the_job() -> None:
    missing = {"/usr/bin/bsah": "missing"}
    found = of_slurm("#!/usr/bin/bsah\nhostname\n", paths=missing)
    stated(found, "interpreter", "problem", "")
    text, commands = "#!/usr/bin/env pyhton\nprint(1)\n", {"pyhton": CommandPlace()}
    stated(of_slurm(text, commands=commands), "interpreter", "", "pyhton")


def test_a_placeholder_is_reported_as_one_and_not_by_its_value() -> None:
    found = sbatch("--cpus-per-task=<PARAM_CPUS>")
    assert "placeholder" in found
    assert not {"option-value", "stray-word", "literal-dollar"} & set(found)
