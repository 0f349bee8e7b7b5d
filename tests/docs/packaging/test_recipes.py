"""The recipes under packaging/ request what pyproject.toml does."""

import re
import tomllib

import pytest
from doc_pages import ROOT

RECIPES = [
    "conda-forge/recipe.yaml",
    "spack/package.py",
    "easybuild/weigh-0.1.0-GCCcore-14.2.0.eb",
]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
LINUX = [one for one in PROJECT["dependencies"] if "!= 'linux'" not in one]
# of a bundle that EasyBuild has
IN_A_BUNDLE = {"click", "jinja2"}


def text_of(recipe: str) -> str:
    return (ROOT / "packaging" / recipe).read_text(encoding="utf-8")


@pytest.mark.parametrize("recipe", RECIPES)
def test_a_recipe_has_the_version(recipe: str) -> None:
    version = (ROOT / "src/weigh/_version.py").read_text().split('"')[-2]
    assert version in text_of(recipe)


@pytest.mark.parametrize("dependency", LINUX)
def test_recipes_have_the_dependency_with_its_version(dependency: str) -> None:
    name, least = re.split(r">=", dependency.partition(";")[0])
    conda, spack, easybuild = map(text_of, RECIPES)
    assert f"- {name} >={least}\n" in conda
    assert f'"py-{name}@{least}:"' in spack
    assert name in IN_A_BUNDLE or f"('{name}', " in easybuild


def test_recipes_have_no_other_dependency() -> None:
    conda, spack, _ = map(text_of, RECIPES)
    names = {re.split(r">=", one)[0] for one in LINUX}
    run = conda.partition("  run:\n")[2].partition("\n\n")[0]
    assert set(re.findall(r"- ([a-z0-9-]+)", run)) == names | {"python"}
    plain = [line for line in spack.splitlines() if "when=" not in line]
    found = set(re.findall(r'depends_on\("py-([a-z0-9-]+)@', "\n".join(plain)))
    assert found == names | {"hatchling"}
