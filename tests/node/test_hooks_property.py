"""Whatever the environment holds: exit status 0, within a second, nothing written outside the directory of leases."""

from __future__ import annotations

import tempfile
from pathlib import Path

from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from support.hooks import JOB, SHELLS, HookBox

# Not OPTIND: with one that is no number dash ends before it reads a script. (slurmd makes the hooks' environment
# itself: a job sets values in it, and names that begin with SPANK_.)
# What the hooks read, what a shell or a program takes from its environment, and the hooks' own variables.
NAMES = [
    *JOB,
    *("SLURM_JOB_SLUID", "SLURM_HET_JOB_ID", "SLURM_JOB_EXIT_CODE", "SLURM_JOB_DERIVED_EC", "SLURM_CONF"),
    *("PATH", "IFS", "ENV", "PS4", "LC_ALL", "LANG", "TMPDIR", "HOME", "PWD", "CDPATH"),
    *(
        "BASH_ENV",
        "SHELLOPTS",
        "BASHOPTS",
        "GLOBIGNORE",
        "POSIXLY_CORRECT",
        "BASH_FUNC_kill%%",
        "BASH_FUNC_ln%%",
    ),
    *("dropped", "text", "job", "hook", "moment", "directory", "leases", "config", "claim", "final", "stat"),
    *("timer", "worker", "uptime", "boot_id", "opened", "best", "sampler_start", "sampler_command", "common"),
]
WORDS = [
    *(
        "",
        "0",
        "1",
        "4711",
        "-1",
        "n1",
        "../../x",
        "/etc/passwd",
        "$(touch pwned)",
        "`touch pwned`",
        "; touch pwned",
    ),
    *(
        "*",
        "?",
        "[a",
        "a b",
        "a\nb=c",
        "%n",
        "%s%s%n",
        "'",
        '"',
        "\\",
        "-n",
        "--",
        "() { touch pwned; }",
        "noexec",
    ),
    *("errexit:nounset", "setsid", "NoDevFiles", "é", "9" * 40, "A" * 5000, "x" * 100_000),
]


def encode(word: str) -> bytes:
    return word.encode()


VALUES = st.one_of(
    st.sampled_from(WORDS).map(encode), st.binary(max_size=40).map(lambda data: data.replace(b"\0", b""))
)
ENVIRONMENTS = st.dictionaries(st.sampled_from(NAMES).map(encode), VALUES, max_size=12)
PLAIN = {encode(name): encode(value) for name, value in JOB.items()}


@given(changes=ENVIRONMENTS, shell=st.sampled_from(list(SHELLS)), planned=st.booleans())
@example(changes={b"PATH": b"", b"dropped": b"x"}, shell="dash", planned=True)
@example(changes={b"SHELLOPTS": b"errexit:nounset:noclobber"}, shell="bash as sh", planned=True)
@settings(max_examples=80, deadline=None, suppress_health_check=[HealthCheck.too_slow])
def test_no_environment_harms(changes: dict[bytes, bytes], shell: str, planned: bool) -> None:
    env = {**PLAIN, **changes} if planned else changes
    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder)
        box = HookBox(root, shell).make()
        config = box.config.read_bytes()
        for hook in ("prolog", "epilog"):
            for attempt in range(3):
                ran = box.run(hook, env, cwd=root)
                if ran.seconds < 1 or attempt == 2:
                    break
            assert (ran.code, ran.seconds < 1) == (0, True), (ran, hook)
        assert sorted(path.name for path in root.iterdir()) == ["hooks.conf", "run"]
        assert sorted(path.name for path in box.directory.iterdir()) == ["leases", "sampler"]
        assert (box.config.read_bytes(), list((box.directory / "sampler").iterdir())) == (config, [])
        assert all(name.endswith((".lease", ".end")) for name in box.names())
        # What a hook wrote, the reader takes.
        assert box.scan().refused == ()
