#!/usr/bin/env bash
# The tests of a whole Slurm (test_cluster_*.py) on newer releases: 24.11 of Debian trixie, 26.05 of Debian forky, each in
# a chroot; on 26.05 also with the hooks run inside the job (PrologFlags=RunInJob).
#
#     bash tests/slurm/cluster_next.sh [SUITE...] [-- PYTEST OPTIONS]
set -euo pipefail

# shellcheck source=chroot.sh
. "$(dirname "$0")/chroot.sh"
VENV=/opt/slurm-trace
SOURCE=/root/slurm-trace

suites=()
while [ $# -gt 0 ] && [ "$1" != -- ]; do suites+=("$1"); shift; done
[ $# -eq 0 ] || shift
[ ${#suites[@]} -gt 0 ] || suites=(trixie forky)

install_ours() {
    rm -rf "${CHROOT:?}$SOURCE"
    mkdir -p "$CHROOT$SOURCE"
    tar -C "$ROOT" --exclude=./.git --exclude='./.*venv*' --exclude='./.*cache' --exclude=./build --exclude=./dist \
        --exclude='__pycache__' --exclude=./.hypothesis --exclude='*.egg-info' -c . | tar -C "$CHROOT$SOURCE" -x
    if [ ! -e "$CHROOT$VENV/.complete" ]; then
        inside python3 -m venv "$VENV"
        inside "$VENV/bin/pip" install --quiet --disable-pip-version-check "$SOURCE" pytest pytest-timeout nvidia-nvml-dev
        touch "$CHROOT$VENV/.complete"
    fi
    inside "$VENV/bin/pip" install --quiet --disable-pip-version-check "$SOURCE"
    inside "$VENV/bin/pip" install --quiet --disable-pip-version-check --force-reinstall --no-deps "$SOURCE"
}

# run_tests FLAGS [PYTEST OPTIONS]: the set under these PrologFlags.
run_tests() {
    local flags=$1
    shift
    echo "== Slurm $(inside dpkg-query -W -f '${Version}' slurm-client), PrologFlags=$flags"
    inside env CI=true PYTHONDONTWRITEBYTECODE=1 SLURM_TRACE_PROLOG_FLAGS="$flags" sh -c "cd $SOURCE && exec \"\$@\"" sh \
        "$VENV/bin/pytest" -q -p no:cacheprovider -m cluster tests/slurm "$@" || failed=1
}

failed=0
for suite in "${suites[@]}"; do
    enter_chroot "$suite"
    install_ours
    run_tests Alloc "$@"
    if [ "$suite" = forky ]; then
        # Slurm 26.05.5 sometimes ends the Epilog of a preempted job by SIGTERM, and drains the node for it, also where
        # the Epilog is `exit 0` (2 of 12 times): no script can help.
        run_tests Alloc,Contain,RunInJob --deselect tests/slurm/test_cluster_jobs.py::test_preempted "$@"
    fi
done
exit "$failed"
