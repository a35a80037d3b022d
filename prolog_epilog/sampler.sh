# shellcheck shell=sh
# Starting a sampler from the Prolog; sourced by it, never run, where hooks.conf says `sampler_start=`.
# The sampler must outlive the Prolog, which slurmd ends by killing its process group.
# shellcheck disable=SC2154 # common.sh reads the configuration and the moment

# The sampler's own file says `PID START`: process id, and field 22 of its /proc/PID/stat, for ids are used again.
sampler_runs() {
    [ -f "$directory/sampler/pid" ] && read -r pid born _ <"$directory/sampler/pid" || return 1
    case $pid in '' | *[!0-9]*) return 1 ;; esac
    read -r stat <"/proc/$pid/stat" || return 1
    # shellcheck disable=SC2086
    set -- ${stat##*) }
    [ "${20}" = "$born" ]
}

start_sampler() {
    sampler_runs && return 0
    set -f
    # shellcheck disable=SC2086 # a command and its arguments
    set -- $sampler_command
    if [ "$sampler_start" = systemd ]; then
        # A name of its own: one that ends may still have its unit.
        systemd-run --no-block --collect --quiet --unit="slurm-trace-sampler-$moment" --uid="$sampler_user" \
            -p Nice=19 -p MemoryMax=128M -p OOMScoreAdjust=-500 -p KillMode=mixed -p TimeoutStopSec=15 \
            -p NoNewPrivileges=yes -p ProtectSystem=full -p ProtectHome=yes -p PrivateNetwork=yes "$@" ||
            say "systemd-run did not start the sampler"
        return 0
    fi
    if [ "$sampler_user" != root ]; then
        set -- setpriv --reuid="$sampler_user" --regid="$sampler_user" --init-groups --no-new-privs -- "$@"
    fi
    # Ends when the last holder of its output has closed it, that is after setsid() and the exec's redirections.
    # shellcheck disable=SC2016 # for the inner shell
    _=$(setsid sh -c 'env -i PATH="$PATH" "$@" </dev/null >/dev/null 2>&1 3>&- 4>&- 5>&- 6>&- 7>&- 8>&- 9>&- &' \
        sh "$@") || say "setsid did not start the sampler"
}
