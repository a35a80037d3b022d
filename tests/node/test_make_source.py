"""The device source that the settings name."""

import pytest

from slurm_trace.errors import UsageProblem
from slurm_trace.node.config import SOURCES, NodeConfig
from slurm_trace.node.main import make_source


@pytest.mark.parametrize("source", SOURCES)
def test_every_source_of_the_settings_can_be_made(source, tmp_path):
    scenario = tmp_path / "scenario"
    scenario.write_text("gpu A100 GPU-1\n")
    made = make_source(NodeConfig(source=source, replay=str(scenario)))
    assert made.info.kind == source


@pytest.mark.parametrize("setting", ["", "on", "False", "YES"])
def test_a_switch_is_yes_or_no(setting):
    with pytest.raises(UsageProblem, match="say yes or no"):
        NodeConfig(gpm=setting)
