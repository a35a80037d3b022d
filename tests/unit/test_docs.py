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


def test_the_columns_and_assumptions_of_a_feed_are_documented():
    from slurm_trace.accounting.feed_columns import ALIASES

    text = (DOCS / "FEED.md").read_text()
    for name, aliases in ALIASES.items():
        assert f"`{name}`" in text
        assert all(alias in text for alias in aliases), name
    schema = json.loads(files("slurm_trace.schema.json").joinpath("feed-report.schema.json").read_text())
    assumptions = schema["properties"]["total"]["properties"]["assumptions"]["items"]["properties"]["id"][
        "enum"
    ]
    assert {f"`{name}`" for name in assumptions} <= set(re.findall(r"`[a-z_]+`", text))


def test_the_example_of_a_sku_is_one(tmp_path):
    from slurm_trace.analysis.provider_skus import ProviderSkus
    from slurm_trace.analysis.rates import Rates

    (example,) = re.findall(r"```json\n(.*?)```", (DOCS / "FEED.md").read_text(), re.DOTALL)
    path = tmp_path / "overlay.json"
    path.write_text(example)
    skus = ProviderSkus.load(Rates.load(), "max_any_op", path)
    assert skus.meaning("hill", "Box 8", {}, late=False).how == "listed"


def test_the_example_of_a_rule_is_one_and_every_file_is_documented(tmp_path):
    from slurm_trace.analysis.rules.ruleset import RuleSet
    from tests.support.rule_files import document

    text = (DOCS / "RULES.md").read_text()
    present = {f.name for f in files("slurm_trace.schema.rules").iterdir() if f.name.endswith(".json")}
    assert present == set(re.findall(r"^\| `([a-z-]+\.json)`", text, re.MULTILINE))
    example = json.loads(re.search(r"^    \{\n(?:    .*\n)+", text, re.MULTILINE)[0])
    (tmp_path / "warning.json").write_text(json.dumps(document(example)))
    assert example["id"] in {rule.id for rule in RuleSet.load(folder=tmp_path).rules}
