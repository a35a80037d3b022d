#!/bin/sh
# All that a change has to pass: the wheel is built, installed, linted, type-checked and tested; never the checkout.
set -eu

ROOT=$(cd "$(dirname "$0")/.." && pwd)
cd "$ROOT"
PYTHON=${PYTHON:-python3}
VENV=$ROOT/.venv-test
DEBIAN_PACKAGES="slurm-wlm slurmdbd slurm-wlm-basic-plugins slurm-wlm-mysql-plugin mariadb-server munge postgresql chromium
    gcc libc6-dev dash bash busybox-static bsdutils util-linux shellcheck systemd"
POLICY=/usr/sbin/policy-rc.d
made_policy=
work=$(mktemp -d)

clean_up() {
    rm -rf "$work"
    if [ -n "$made_policy" ]; then rm -f "$POLICY"; fi
}
trap clean_up EXIT
trap 'exit 130' INT TERM

say() { printf '\n== %s\n' "$*"; }

missing_packages() {
    for package in $DEBIAN_PACKAGES; do
        dpkg-query -W -f '${db:Status-Status}' "$package" 2>/dev/null | grep -qx installed || printf '%s ' "$package"
    done
}

install_packages() {
    missing=$(missing_packages)
    [ -n "$missing" ] || return 0
    say "Debian packages: $missing"
    if [ ! -e "$POLICY" ]; then
        # The tests start their own servers; none that a package brings may start by itself.
        printf '#!/bin/sh\nexit 101\n' >"$POLICY"
        chmod 755 "$POLICY"
        made_policy=yes
    fi
    apt-get update -qq
    # shellcheck disable=SC2086
    DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends $missing >"$work/apt.log" 2>&1 || {
        tail -n 30 "$work/apt.log" >&2
        return 1
    }
}

full=yes
if [ "$(id -u)" -ne 0 ] || ! command -v apt-get >/dev/null 2>&1; then full=; fi
if [ -n "$full" ]; then install_packages; fi

say "wheel"
"$PYTHON" -m venv "$VENV"
pip() { "$VENV/bin/python" -m pip --disable-pip-version-check --quiet "$@"; }
pip install build
rm -rf build dist
"$VENV/bin/python" -m build --outdir dist . >"$work/build.log" 2>&1 || { tail -n 40 "$work/build.log" >&2; exit 1; }
wheel=$(ls dist/slurm_trace-*.whl)
pip install --force-reinstall --no-deps "$wheel"
pip install "$wheel[dev]"
echo "$wheel"

say "ruff"
"$VENV/bin/ruff" check .
"$VENV/bin/ruff" format --check .

say "mypy --strict, of the installed wheel"
mkdir "$work/empty"
(cd "$work/empty" && "$VENV/bin/mypy" --strict --config-file "$ROOT/pyproject.toml" --cache-dir "$work/mypy" -p slurm_trace)

say "pytest"
suites="tests/unit tests/property tests/node"
left_out=
if [ -n "$full" ]; then
    suites="$suites tests/databases tests/slurm"
else
    left_out="tests/databases (PostgreSQL, MariaDB) and tests/slurm (the real sacct)"
fi
if command -v chromium >/dev/null 2>&1; then
    suites="$suites tests/browser"
else
    left_out="$left_out${left_out:+ and }tests/browser (Chromium)"
fi
# shellcheck disable=SC2086
"$VENV/bin/pytest" $suites

if [ -n "$left_out" ]; then
    cat >&2 <<END

*** NOT RUN: $left_out
*** They need root and apt-get (Debian or Ubuntu) to install and start real servers.
*** To run everything: sudo make test, or make test as root in a Debian container.
END
    if [ "${CI:-}" = true ]; then exit 1; fi
fi
