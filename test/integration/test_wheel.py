"""The wheel in a user's site-packages, built by pip, together with a package that has the names of this project's folders."""

import json
import os
import shutil
import site
import subprocess
import sys
import tarfile
import venv
import zipfile
from pathlib import Path
from typing import Final

import pytest

from hack.control_plane import ControlPlane
from hack.image.build import SOURCES, VERSION
from hack.library import build_wheel as build_library
from support.pages import below
from support.waiting import eventually

pytestmark = pytest.mark.nightly
ROOT: Final = Path(__file__).parents[2]
FOLDERS: Final = ("api", "cli", "controller", "informers", "workqueue")
NEIGHBOUR: Final = {
    "api/__init__.py": "WHOSE = 'theirs'\n",
    "controller/__init__.py": "from api import WHOSE\n",
    "neighbour-1.0.dist-info/METADATA": "Metadata-Version: 2.1\nName: neighbour\nVersion: 1.0\n",
    "neighbour-1.0.dist-info/WHEEL": "Wheel-Version: 1.0\nGenerator: test\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
    "neighbour-1.0.dist-info/RECORD": "",
}


def run(*command: str | Path, cwd: Path) -> str:
    """What a command prints; it must succeed."""
    # Without PYTHONDONTWRITEBYTECODE, or each of these commands would compile everything again.
    environ = {name: value for name, value in os.environ.items() if not name.startswith("PYTHON")}
    done = subprocess.run(list(map(str, command)), cwd=cwd, env=environ, capture_output=True, text=True, check=False)
    assert done.returncode == 0, f"{command}: {done.stdout}{done.stderr}"
    return done.stdout


def built(kind: str, sources: Path, into: Path) -> Path:
    """Build a distribution of these sources with setuptools, which writes folders beside them: so not in the checkout."""
    call = f"import setuptools.build_meta as backend; backend.build_{kind}({str(into)!r})"
    run(sys.executable, "-c", call, cwd=sources)
    (made,) = into.glob("tfjob_operator-*.whl" if kind == "wheel" else "tfjob[-_]operator-*.tar.gz")
    return made


@pytest.fixture(scope="module")
def sdist(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The source distribution, made from the files that the image is made from."""
    folder = tmp_path_factory.mktemp("checkout")
    for name in SOURCES:
        path = ROOT / name
        if path.is_dir():
            shutil.copytree(path, folder / name, symlinks=True, ignore=shutil.ignore_patterns("__pycache__"))
        else:
            shutil.copy(path, folder / name)
    return built("sdist", folder, tmp_path_factory.mktemp("sdist"))


@pytest.fixture(scope="module")
def wheel(sdist: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The wheel, made of the source distribution alone."""
    folder = tmp_path_factory.mktemp("unpacked")
    with tarfile.open(sdist) as archive:
        archive.extraction_filter = getattr(tarfile, "data_filter", None)  # since Python 3.11.4
        archive.extractall(folder)
    (sources,) = folder.iterdir()
    return built("wheel", sources, tmp_path_factory.mktemp("wheel"))


@pytest.fixture(scope="module")
def environment(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A virtual environment with both wheels and a neighbour; third-party packages are those of this environment."""
    folder = tmp_path_factory.mktemp("environment")
    neighbour = folder / "neighbour-1.0-py3-none-any.whl"
    with zipfile.ZipFile(neighbour, "w") as archive:
        for name, text in NEIGHBOUR.items():
            archive.writestr(name, text)
    venv.create(folder, with_pip=True, symlinks=True)  # the environment of these tests need not have pip
    options = ("--quiet", "--no-index", "--no-deps", "--no-compile", "--disable-pip-version-check")
    library = build_library(tmp_path_factory.mktemp("library"))
    run(folder / "bin/python", "-m", "pip", "install", *options, wheel, library, neighbour, cwd=folder)
    # Only the path is added: *.pth files in it, such as that of an editable install, are not read.
    (packages(folder) / "third-parties.pth").write_text("\n".join(site.getsitepackages()))
    return folder


def packages(environment: Path) -> Path:
    (found,) = environment.glob("lib/python3.*/site-packages")
    return found


def test_the_wheel_has_every_module_of_the_checkout_under_one_name(wheel: Path) -> None:
    """A folder that nobody listed would be missed at the first import in a cluster; nobody's package `api` is overwritten."""
    with zipfile.ZipFile(wheel) as archive:
        names = archive.namelist()
    assert {name.partition("/")[0] for name in names} == {"tfjob_operator", f"tfjob_operator-{VERSION}.dist-info"}
    ours = {
        f"tfjob_operator/{path.relative_to(ROOT)}"
        for folder in FOLDERS
        for pattern in ("*.py", "py.typed", "static/*")
        for path in (ROOT / folder).rglob(pattern)
    } | {"tfjob_operator/__init__.py", "tfjob_operator/py.typed"}
    assert {name for name in names if name.startswith("tfjob_operator/")} == ours


def test_the_source_distribution_has_no_links(sdist: Path) -> None:
    """It may be unpacked on systems without symbolic links."""
    with tarfile.open(sdist) as archive:
        assert [member.name for member in archive if not (member.isfile() or member.isdir())] == []


def test_the_command_runs_beside_a_package_with_the_names_of_our_folders(environment: Path) -> None:
    """`tfjob-operator`, as the image and `pip install` provide it, with all that it imports."""
    command = environment / "bin/tfjob-operator"
    assert run(command, "--version", cwd=environment) == f"tfjob-operator {VERSION}\n"
    assert "--leader-elect" in run(command, "--help", cwd=environment)


def test_both_packages_are_imported_as_what_they_are(environment: Path) -> None:
    """`api` is the neighbour's package, and all modules of ours can be imported."""
    script = """
import importlib, pkgutil, sys, api, controller, tfjob_operator
assert (api.WHOSE, controller.WHOSE) == ("theirs", "theirs")
for module in pkgutil.walk_packages(tfjob_operator.__path__, "tfjob_operator."):
    if not module.name.endswith("__main__"):
        importlib.import_module(module.name)
assert sys.modules["tfjob_operator.api"] is not api
print(tfjob_operator.__file__)
"""
    place = run(environment / "bin/python", "-c", script, cwd=environment).strip()
    assert Path(place).is_relative_to(packages(environment)), "the checkout was imported"


def test_the_controller_of_the_guide_runs_from_the_wheel_of_the_library(
    environment: Path, control_plane: ControlPlane, namespace: str, tmp_path: Path
) -> None:
    """Its program, which mirrors, follows, heals, collects and spares others' objects, and the commands of the guide."""
    program = shutil.copy(ROOT / "hack/examples/mirror.py", tmp_path)

    def kubectl(*arguments: str) -> str:
        return control_plane.run_kubectl(*arguments, f"--namespace={namespace}", check=False).stdout

    def copy() -> str:
        return kubectl("get", "configmap", "a-mirror", "--ignore-not-found", "--output=jsonpath={.data.x}")

    environ = {name: value for name, value in os.environ.items() if not name.startswith("PYTHON")}
    environ["KUBECONFIG"] = str(control_plane.kubeconfig)
    with subprocess.Popen([environment / "bin/python", program], cwd=tmp_path, env=environ) as controller:
        try:
            create, label, get, delete = (
                each.text.split()[1:]
                for each in below("docs/write-a-controller.md", "The parts below")
                if each.text.startswith("kubectl ")
            )
            kubectl(*create)
            kubectl("create", "configmap", "other", "--from-literal=x=1")
            kubectl(*label)
            eventually(lambda: copy() == "1", "the copy is there")
            kubectl("patch", "configmap", "a", "--patch", '{"data": {"x": "2"}}')
            eventually(lambda: copy() == "2", "the copy follows")
            kubectl("delete", "configmap", "a-mirror")
            eventually(lambda: copy() == "2", "the copy is back")
            assert "other-mirror" not in kubectl(*get)
            kubectl("create", "configmap", "other-mirror", "--from-literal=theirs=1")
            kubectl("label", "configmap", "other", "mirror=yes")
            refused = ("get", "events", "--field-selector=reason=ErrResourceExists", "--output=name")
            eventually(lambda: kubectl(*refused), "the object of another is reported")
            assert kubectl("get", "configmap", "other-mirror", "--output=jsonpath={.data}") == '{"theirs":"1"}'
            kubectl("delete", "configmap", "other-mirror")
            eventually(lambda: "other-mirror" in kubectl(*get), "the name is free")
            kubectl(*delete)
            eventually(lambda: copy() == "", "the copy is collected")
            controller.terminate()
            assert controller.wait(60) == 0
        finally:
            controller.kill()


def test_the_controller_beside_kopf_s_runs_from_the_wheel_of_the_library(
    environment: Path, control_plane: ControlPlane, namespace: str
) -> None:
    """docs/from-kopf.md: it creates, reports, corrects, and cleans up in another namespace."""

    def kubectl(*arguments: str) -> str:
        return control_plane.run_kubectl(*arguments, f"--namespace={namespace}", check=False).stdout

    def found(kind: str, path: str) -> str:
        return kubectl("get", kind, "blog", "--ignore-not-found", f"--output=jsonpath={path}")

    def records() -> str:
        return control_plane.run_kubectl("get", "configmaps", "--namespace=dns", "--output=name").stdout

    control_plane.run_kubectl("apply", "--filename", str(ROOT / "hack/examples/website.yaml"))
    control_plane.wait_for_crd("websites.example.com")
    control_plane.run_kubectl("create", "namespace", "dns")
    website: dict[str, object] = {"apiVersion": "example.com/v1", "kind": "Website", "metadata": {"name": "blog"}}
    website["spec"] = {"image": "nginx:1", "replicas": 2}
    environ = {name: value for name, value in os.environ.items() if not name.startswith("PYTHON")}
    environ["KUBECONFIG"] = str(control_plane.kubeconfig)
    program = ROOT / "hack/examples/website.py"
    with subprocess.Popen([environment / "bin/python", program], cwd=environment, env=environ) as controller:
        try:
            control_plane.run_kubectl("create", "--filename=-", f"--namespace={namespace}", input=json.dumps(website))
            ready = "{.status.readyReplicas} {.status.conditions[0].status}"
            eventually(lambda: found("website", ready) == "0 False", "the status is there")
            eventually(lambda: f"configmap/{namespace}.blog" in records(), "the record is there")
            created = ("get", "events", "--field-selector=reason=Created", "--output=name")
            eventually(lambda: kubectl(*created), "the event is there")
            kubectl("patch", "website", "blog", "--type=merge", "--patch", '{"spec": {"replicas": 3}}')
            eventually(lambda: found("deployment", "{.spec.replicas}") == "3", "the Deployment follows")
            kubectl("patch", "deployment", "blog", "--type=merge", "--patch", '{"spec": {"replicas": 9}}')
            eventually(lambda: found("deployment", "{.spec.replicas}") == "3", "the edit is undone")
            before = found("deployment", "{.metadata.uid}")
            kubectl("delete", "deployment", "blog", "--wait=false")
            eventually(lambda: found("deployment", "{.metadata.uid}") not in {"", before}, "the Deployment is back")
            kubectl("delete", "website", "blog", "--wait=false")
            eventually(lambda: found("website", "{.metadata.name}") == "", "the Website is gone")
            assert f"configmap/{namespace}.blog" not in records()
            taken = json.dumps(website | {"metadata": {"name": "taken"}})
            control_plane.run_kubectl("create", "configmap", f"{namespace}.taken", "--namespace=dns")
            control_plane.run_kubectl("create", "--filename=-", f"--namespace={namespace}", input=taken)
            eventually(lambda: kubectl("get", "deployment", "taken", "--output=name"), "a name that is taken is met")
            kubectl("delete", "website", "taken")
            assert f"configmap/{namespace}.taken" in records(), "it is somebody else's"
            controller.terminate()
            assert controller.wait(60) == 0
        finally:
            controller.kill()
