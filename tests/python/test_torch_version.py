"""The check of the PyTorch version at import."""

import re

import pytest

from dreamddp.torch_version import check_torch_version, require_same_minor


def test_installed_torch_is_the_one_built_for() -> None:
    check_torch_version()


@pytest.mark.parametrize("installed", ["2.13.0", "2.13.0+cpu", "2.13.4+cu130", "2.13.0a0+git1234"])
def test_patch_and_local_version_do_not_matter(installed: str) -> None:
    require_same_minor(installed, "2.13.0+cpu")


@pytest.mark.parametrize("installed", ["2.12.1", "2.14.0+cpu", "3.13.0", "2.1.3"])
def test_other_minor_version_is_an_import_error_with_a_remedy(installed: str) -> None:
    message = f"built for PyTorch 2.13.0, but {installed} is installed. Build it again"
    with pytest.raises(ImportError, match=re.escape(message)):
        require_same_minor(installed, "2.13.0+cpu")


def test_unreadable_version_is_an_import_error() -> None:
    with pytest.raises(ImportError, match="cannot be read: 'nightly'"):
        require_same_minor("nightly", "2.13.0")
