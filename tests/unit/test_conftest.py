"""Under CI=true a test that did not run is a failure; elsewhere it is a skip."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

CONFTEST = Path(__file__).parents[1] / "conftest.py"
SKIPS = {
    "call": "import pytest\ndef test_it(): pytest.skip('no server')\n",
    "mark": "import pytest\n@pytest.mark.skip(reason='no server')\ndef test_it(): pass\n",
    "module": "import pytest\npytest.skip('no server', allow_module_level=True)\n",
    "xfail": "import pytest\n@pytest.mark.xfail\ndef test_it(): assert False\n",
}


@pytest.mark.parametrize("how", SKIPS)
@pytest.mark.parametrize(("ci", "status"), [("true", {1, 2}), ("", {0, 5})])
def test_a_skip_fails_in_ci_alone(how: str, ci: str, status: set[int], tmp_path: Path) -> None:
    shutil.copy(CONFTEST, tmp_path)
    (tmp_path / "test_it.py").write_text(SKIPS[how])
    command = [
        sys.executable,
        "-m",
        "pytest",
        "-q",
        "-p",
        "no:cacheprovider",
        "--rootdir",
        str(tmp_path),
        str(tmp_path),
    ]
    done = subprocess.run(
        command, cwd=tmp_path, env=os.environ | {"CI": ci}, capture_output=True, text=True, check=False
    )
    assert done.returncode in status, done.stdout
