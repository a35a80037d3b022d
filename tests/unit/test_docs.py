"""What the documents list is what the code knows."""

import json
import re
import tomllib
from importlib.resources import files
from pathlib import Path

DOCS = Path(__file__).parents[2] / "docs"


def test_every_key_of_the_site_profile_is_documented():
    schema = json.loads(files("slurm_trace.schema.json").joinpath("site-profile.schema.json").read_text())
    text = (DOCS / "SITE-PROFILE.md").read_text()
    documented = set(re.findall(r"`([a-z_]+)`", text))
    for part in ("cluster", "node_group"):
        assert set(schema["$defs"][part]["properties"]) <= documented


def test_the_example_of_a_site_profile_is_one(tmp_path):
    from slurm_trace.site.profile import load_profile

    (example,) = re.findall(r"```toml\n(.*?)```", (DOCS / "SITE-PROFILE.md").read_text(), re.DOTALL)
    path = tmp_path / "site.toml"
    path.write_text(example)
    assert set(load_profile(path).clusters) == set(tomllib.loads(example)["clusters"])
