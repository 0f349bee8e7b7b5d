# Copyright Spack Project Developers. See COPYRIGHT file for details.
#
# SPDX-License-Identifier: (Apache-2.0 OR MIT)

from spack_repo.builtin.build_systems.python import PythonPackage

from spack.package import *


class PyWeigh(PythonPackage):
    """Measure a job before you submit it to the cluster: memory, CPUs, GPUs and
    time of any command, and what to request from Slurm, Grid Engine or HTCondor."""

    pypi = "weigh/weigh-0.1.0.tar.gz"

    license("MIT")

    version("0.1.0", sha256="0" * 64)  # SHA256

    variant("profile", default=False, description="weigh profile, by Scalene")

    depends_on("python@3.11:", type=("build", "run"))
    depends_on("py-hatchling@1.24:", type="build")
    depends_on("py-click@8.1:", type=("build", "run"))
    depends_on("py-jinja2@3.1:", type=("build", "run"))
    depends_on("py-msgspec@0.19:", type=("build", "run"))
    depends_on("py-scalene@2.1.4:", type=("build", "run"), when="+profile")
