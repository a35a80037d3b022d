#!/usr/bin/env bash
# pyslurm 25.11.2 built off label against Slurm 26.05 in a Debian forky chroot, and the adapter compared with sacct there.
# Needs root and debootstrap. The chroot (1.3 GB, five minutes) is kept in the cache folder and used again.
set -euo pipefail

# shellcheck source=chroot.sh
. "$(dirname "$0")/chroot.sh"
VENV=/opt/pyslurm

enter_chroot forky
mkdir -p "$CHROOT/repo"
mount --bind "$ROOT" "$CHROOT/repo"
mount -o remount,bind,ro "$CHROOT/repo"

if [ ! -e "$CHROOT$VENV/.complete" ]; then
    echo "== pyslurm, told that these headers are of 25.11 (four minutes)"
    inside bash -euc "
        headers=/opt/headers-25.11
        rm -rf $VENV \$headers; mkdir -p \$headers/slurm; cp /usr/include/slurm/*.h \$headers/slurm/
        sed -i 's/^#define SLURM_VERSION_NUMBER .*/#define SLURM_VERSION_NUMBER 0x190b02/' \$headers/slurm/slurm_version.h
        python3 -m venv $VENV
        export SLURM_LIB_DIR=/usr/lib/\$(gcc -print-multiarch) SLURM_INCLUDE_DIR=\$headers PYSLURM_BUILD_JOBS=2
        export CFLAGS='-DSLURM_BACKWARD_COMPAT -O1 -Wno-error=implicit-function-declaration
                       -DESLURM_ERROR_ON_DESC_TO_RECORD_COPY=2022 -Dslurm_free_ctl_conf=slurm_free_conf'
        $VENV/bin/pip install --quiet --disable-pip-version-check pyslurm==25.11.2 pytest ClusterShell
        touch $VENV/.complete
    "
fi

echo "== the adapter beside sacct: Slurm $(inside dpkg-query -W -f '${Version}' slurm-client), pyslurm 25.11.2 (off label)"
inside env PYTHONPATH=/repo PYTHONDONTWRITEBYTECODE=1 \
    "$VENV/bin/pytest" -q -p no:cacheprovider -W ignore::pytest.PytestConfigWarning --rootdir /repo /repo/tests/slurm/pyslurm_offlabel.py
