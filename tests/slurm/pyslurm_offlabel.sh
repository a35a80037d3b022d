#!/usr/bin/env bash
# pyslurm 25.11.2 built off label against Slurm 26.05 in a Debian forky chroot, and the adapter compared with sacct there.
# Needs root and debootstrap. The chroot (1.3 GB, five minutes) is kept in the cache folder and used again.
set -euo pipefail

ROOT=$(cd "$(dirname "$0")/../.." && pwd)
CACHE=${SLURM_TRACE_CHROOTS:-${XDG_CACHE_HOME:-$HOME/.cache}/slurm-trace}
CHROOT=$CACHE/forky
VENV=/opt/pyslurm
PACKAGES="slurm-wlm slurmdbd slurm-wlm-mysql-plugin slurm-wlm-basic-plugins mariadb-server munge procps
          libslurm-dev python3 python3-venv python3-pip python3-dev gcc libc6-dev ca-certificates"

if [ "$(id -u)" -ne 0 ]; then echo "run this as root: it builds a chroot" >&2; exit 1; fi
command -v debootstrap >/dev/null || { echo "install debootstrap first" >&2; exit 1; }

# Everything below runs in a mount namespace of its own: no mount is left behind, whatever happens.
if [ -z "${IN_NAMESPACE:-}" ]; then exec env IN_NAMESPACE=1 unshare --mount bash "$0" "$@"; fi

inside() {
    env -i PATH=/usr/sbin:/usr/bin:/sbin:/bin HOME=/root LANG=C.UTF-8 DEBIAN_FRONTEND=noninteractive \
        chroot "$CHROOT" "$@"
}

mirror() {
    # The machine's own Debian mirror, in the new or the old form of apt's sources.
    awk '/^URIs:/ { print $2; exit }' /etc/apt/sources.list.d/debian.sources 2>/dev/null ||
        awk '$1 == "deb" && $2 ~ /:/ { print $2; exit }' /etc/apt/sources.list
}

if [ ! -e "$CHROOT/.complete" ]; then
    echo "== Debian forky in $CHROOT"
    rm -rf --one-file-system "$CHROOT"
    mkdir -p "$CACHE"
    debootstrap --variant=minbase forky "$CHROOT" "$(mirror)" /usr/share/debootstrap/scripts/sid >"$CACHE/debootstrap.log"
    cp -a /etc/apt/apt.conf.d/. "$CHROOT/etc/apt/apt.conf.d/"
    echo 'APT::Install-Recommends "false";' >"$CHROOT/etc/apt/apt.conf.d/99no-recommends"
    printf '#!/bin/sh\nexit 101\n' >"$CHROOT/usr/sbin/policy-rc.d"
    chmod 755 "$CHROOT/usr/sbin/policy-rc.d"
    touch "$CHROOT/.complete"
fi

# Without its own name in hosts Slurm's daemons can't listen.
printf '127.0.0.1 localhost %s\n::1 localhost\n' "$(hostname -s)" >"$CHROOT/etc/hosts"
cp /etc/resolv.conf "$CHROOT/etc/resolv.conf"
mkdir -p "$CHROOT/repo"
mount --bind /proc "$CHROOT/proc"
mount --bind /sys "$CHROOT/sys"
mount --rbind /dev "$CHROOT/dev"
mount --bind "$ROOT" "$CHROOT/repo"
mount -o remount,bind,ro "$CHROOT/repo"

if [ ! -x "$CHROOT/usr/sbin/slurmdbd" ] || [ ! -e "$CHROOT/usr/include/slurm/slurm.h" ]; then
    echo "== Slurm and a compiler"
    inside apt-get update -qq
    # shellcheck disable=SC2086
    inside apt-get install -y -qq $PACKAGES >"$CACHE/apt.log" 2>&1 || { tail -n 30 "$CACHE/apt.log" >&2; exit 1; }
fi

# The host's authorities and pip settings, so that pip reaches its index in there as it does out here.
cp /etc/ssl/certs/ca-certificates.crt "$CHROOT/etc/ssl/certs/ca-certificates.crt"
if [ -e /etc/pip.conf ]; then cp /etc/pip.conf "$CHROOT/etc/pip.conf"; fi

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
