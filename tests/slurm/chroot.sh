# shellcheck shell=bash
# A newer Debian in a chroot, with its Slurm and a Python; sourced by the scripts here. Needs root and debootstrap.
# It is built once (two minutes, 1.3 GB), kept in the cache folder and used again.

# shellcheck disable=SC2034 # for the scripts
ROOT=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)
CACHE=${SLURM_TRACE_CHROOTS:-${XDG_CACHE_HOME:-$HOME/.cache}/slurm-trace}
PACKAGES="slurm-wlm slurmdbd slurm-wlm-mysql-plugin slurm-wlm-basic-plugins mariadb-server munge procps
          libslurm-dev python3 python3-venv python3-pip python3-dev gcc libc6-dev ca-certificates"

if [ "$(id -u)" -ne 0 ]; then echo "run this as root: it builds a chroot" >&2; exit 1; fi
command -v debootstrap >/dev/null || { echo "install debootstrap first" >&2; exit 1; }

# Everything that follows runs in namespaces of its own: neither a mount nor a process is left behind, whatever happens.
if [ -z "${IN_NAMESPACE:-}" ]; then exec env IN_NAMESPACE=1 unshare --mount --pid --fork bash "$0" "$@"; fi

inside() {
    env -i PATH=/usr/sbin:/usr/bin:/sbin:/bin HOME=/root LANG=C.UTF-8 DEBIAN_FRONTEND=noninteractive \
        chroot "$CHROOT" "$@"
}

mirror() {
    # The machine's own Debian mirror, in the new or the old form of apt's sources.
    awk '/^URIs:/ { print $2; exit }' /etc/apt/sources.list.d/debian.sources 2>/dev/null ||
        awk '$1 == "deb" && $2 ~ /:/ { print $2; exit }' /etc/apt/sources.list
}

# enter_chroot SUITE: sets CHROOT, a Debian of that name with Slurm and the packages above, mounted and ready.
enter_chroot() {
    local suite=$1 recipe=/usr/share/debootstrap/scripts/$1
    CHROOT=$CACHE/$suite
    # A suite that is younger than this debootstrap is made as unstable is.
    [ -e "$recipe" ] || recipe=/usr/share/debootstrap/scripts/sid
    if [ ! -e "$CHROOT/.complete" ]; then
        echo "== Debian $suite in $CHROOT"
        rm -rf --one-file-system "$CHROOT"
        mkdir -p "$CACHE"
        debootstrap --variant=minbase "$suite" "$CHROOT" "$(mirror)" "$recipe" >"$CACHE/$suite.debootstrap.log"
        cp -a /etc/apt/apt.conf.d/. "$CHROOT/etc/apt/apt.conf.d/"
        echo 'APT::Install-Recommends "false";' >"$CHROOT/etc/apt/apt.conf.d/99no-recommends"
        printf '#!/bin/sh\nexit 101\n' >"$CHROOT/usr/sbin/policy-rc.d"
        chmod 755 "$CHROOT/usr/sbin/policy-rc.d"
        touch "$CHROOT/.complete"
    fi

    # Without its own name in hosts Slurm's daemons can't listen.
    printf '127.0.0.1 localhost %s\n::1 localhost\n' "$(hostname -s)" >"$CHROOT/etc/hosts"
    cp /etc/resolv.conf "$CHROOT/etc/resolv.conf"
    mount -t proc proc "$CHROOT/proc"
    mount --bind /sys "$CHROOT/sys"
    mount --rbind /dev "$CHROOT/dev"

    if [ ! -x "$CHROOT/usr/sbin/slurmdbd" ] || [ ! -e "$CHROOT/usr/include/slurm/slurm.h" ]; then
        echo "== Slurm and a compiler"
        inside apt-get update -qq
        # shellcheck disable=SC2086
        inside apt-get install -y -qq $PACKAGES >"$CACHE/$suite.apt.log" 2>&1 || {
            tail -n 30 "$CACHE/$suite.apt.log" >&2
            exit 1
        }
    fi

    # The host's authorities and pip settings, so that pip reaches its index in there as it does out here.
    cp /etc/ssl/certs/ca-certificates.crt "$CHROOT/etc/ssl/certs/ca-certificates.crt"
    if [ -e /etc/pip.conf ]; then cp /etc/pip.conf "$CHROOT/etc/pip.conf"; fi
}
