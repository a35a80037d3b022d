# shellcheck shell=sh
# What the two hooks share; sourced by them, never run. Shell builtins, and per hook one `sleep`, one `ln` and one `rm`.
#
# No file is touched by the hook's own process: a child does the work, and a hung directory hangs only that child.
# The environment is a stranger's: of it only what is written out in the hooks is read, checked character by character.

PATH=/usr/sbin:/usr/bin:/sbin:/bin
LC_ALL=C
export PATH LC_ALL
umask 027
# A bash in sh's place takes functions from the environment, and every shell takes variables.
unset -f kill wait read printf sleep ln rm mkdir chmod chgrp chown logger setsid setpriv env
config=${1:-/etc/slurm-trace/hooks.conf}
hook=${0##*/} dropped='' text=''
case ${SLURM_JOB_ID-} in
    '' | 0* | *[!0-9]*) job='' ;;
    *) job=$SLURM_JOB_ID ;;
esac
[ "${#job}" -le 10 ] || job=''

# run_within SECONDS COMMAND...: true if the command ended in time; otherwise it is killed.
# The timer is a sleep that the command's end kills; none outlives this. Not `wait`: in dash and busybox it never
# returns where the caller has SIGCHLD blocked.
run_within() {
    worker=$(
        (
            shift
            # The second word after the name in brackets is the parent, which has become the sleep.
            read -r stat </proc/self/stat
            stat=${stat##*) ? }
            timer=${stat%% *}
            trap 'kill -9 "$timer"' EXIT
            "$@"
        ) >/dev/null &
        echo $!
        exec sleep "$1"
    )
    [ $? -le 128 ] || return 0
    kill -9 "$worker"
    return 1
}

say() { logger -t slurm-trace -p daemon.warning -- "$hook: job ${job:-unknown}: $1"; }

# trouble MESSAGE: one line to syslog, and the end of this hook's work.
trouble() {
    say "$1"
    exit 0
}

# prepare: moment, boot_id, leases and the configuration; ends the work where one of them, or the job id, is missing.
prepare() {
    # Every file is created anew: a link that lies in the way is not followed.
    set -C
    [ -n "$job" ] || trouble "refused: SLURM_JOB_ID is no plain number of up to 10 digits"
    read -r uptime _ </proc/uptime || trouble "cannot read /proc/uptime"
    read -r boot_id </proc/sys/kernel/random/boot_id || trouble "cannot read the boot id"
    moment=${uptime%.*}${uptime#*.}
    case $moment in '' | *[!0-9]*) trouble "/proc/uptime is not a number" ;; esac
    read_config
    leases=$directory/leases
    [ -d "$leases" ] || make_directory
    # Whoever owns the directory decides what lies in it.
    # shellcheck disable=SC3067 # -O is in dash, busybox and bash
    if [ -L "$leases" ] || [ ! -O "$leases" ]; then trouble "refused: $leases is a link or has another owner"; fi
}

read_config() {
    directory=/run/slurm-trace sampler_start=no sampler_user=slurm-trace
    sampler_command='/usr/libexec/slurm-trace/slurm-trace-node run --until-idle --syslog'
    if [ -r "$config" ]; then
        while IFS= read -r line || [ -n "$line" ]; do
            case $line in
                directory=/*) directory=${line#*=} ;;
                sampler_start=*) sampler_start=${line#*=} ;;
                sampler_user=*) sampler_user=${line#*=} ;;
                sampler_command=/*) sampler_command=${line#*=} ;;
            esac
        done <"$config"
    fi
    case $directory in
        *%n*)
            # Several slurmd on one machine: a directory, and a sampler, for each.
            case ${SLURMD_NODENAME-} in
                '' | .* | *[!A-Za-z0-9_.-]*) trouble "refused: SLURMD_NODENAME is no host name" ;;
            esac
            directory=${directory%%\%n*}$SLURMD_NODENAME${directory#*%n}
            ;;
    esac
}

# Normally systemd-tmpfiles has made it at boot.
make_directory() {
    [ -d "$directory" ] || mkdir -m 0755 "$directory"
    mkdir -m 2750 "$leases" || [ -d "$leases" ] || trouble "cannot create $leases"
    mkdir -m 0755 "$directory/sampler"
    chgrp slurm-trace "$leases" && chmod 2750 "$leases"
    chown slurm-trace "$directory/sampler"
}

# note KEY LIMIT KIND SET VALUE: adds a line. An absent variable gives none, one that does not pass goes to `dropped`.
note() {
    [ -n "$4" ] || return 0
    passed=yes
    case $5 in *[!A-Za-z0-9_.,:+@/-]*) passed='' ;; esac
    case $3$5 in number | number*[!0-9]*) passed='' ;; esac
    [ "${#5}" -le "$2" ] || passed=''
    if [ -n "$passed" ]; then
        text="$text$1=$5
"
    else
        dropped=${dropped:+$dropped,}$1
    fi
}

# The last line is the uptime: a file without it is not whole.
finish_text() {
    text="$text${dropped:+dropped=$dropped
}boot_id=$boot_id
uptime=$uptime
"
}

# publish SUFFIX [OTHER]: the text as a file that nobody else has, complete from the first moment. Where OTHER is given,
# the file begins a pair, and none of that ending may have its name either.
publish() {
    last=$((moment + 40)) published=''
    while [ "$moment" -lt "$last" ]; do
        claim=$leases/.$job.$moment.$$.tmp
        final=$leases/$job.$moment.$1
        if [ ! -e "$claim" ] && [ ! -L "$claim" ] && [ ! -e "$final" ] && [ ! -L "$final" ] &&
            { [ -z "${2-}" ] || [ ! -e "$leases/$job.$moment.$2" ]; }; then
            # A link, not `mv -n`: that one looks and then renames in busybox and old coreutils, over another's file.
            printf '%s' "$text" >"$claim" && ln -n -- "$claim" "$final" && published=yes
            rm -f -- "$claim"
            [ -z "$published" ] || return 0
            # Another node's hook on this machine may have been faster by less than the clock shows.
            [ -e "$final" ] || trouble "cannot write $final: no space, read-only, or no permission"
        fi
        moment=$((moment + 1))
    done
    trouble "cannot write $final: the names are taken"
}

# Leases that the sampler has sealed, and, where none takes them, closed ones over a limit: /run is memory.
sweep() {
    set --
    for done in "$directory"/sampler/*.done; do
        stem=${done##*/}
        stem=${stem%.done}
        case $stem in *[!0-9.]*) continue ;; esac
        set -- "$@" "$leases/$stem.lease" "$leases/$stem.end" "$done"
        [ $# -lt 300 ] || break
    done
    [ $# -eq 0 ] || rm -f -- "$@"
    set -- "$leases"/*.end
    kept=$#
    [ "$kept" -gt 4000 ] || return 0
    set --
    for end in "$leases"/*.end; do
        set -- "$@" "${end%.end}.lease" "$end"
        [ $# -lt 300 ] || break
    done
    rm -f -- "$@"
    say "no sampler took $kept closed leases; removed some"
}

# The sampler's own file says `PID START`: process id, and field 22 of its /proc/PID/stat, for ids are used again.
sampler_runs() {
    [ -f "$directory/sampler/pid" ] && read -r pid born _ <"$directory/sampler/pid" || return 1
    case $pid in '' | *[!0-9]*) return 1 ;; esac
    read -r stat <"/proc/$pid/stat" || return 1
    # shellcheck disable=SC2086
    set -- ${stat##*) }
    [ "${20}" = "$born" ]
}

# Only where hooks.conf says so. The sampler must outlive this script, which slurmd ends by killing its process group.
start_sampler() {
    case $sampler_start in systemd | setsid) ;; *) return 0 ;; esac
    sampler_runs && return 0
    set -f
    # shellcheck disable=SC2086 # a command and its arguments
    set -- $sampler_command
    if [ "$sampler_start" = systemd ]; then
        systemd-run --no-block --collect --quiet --unit=slurm-trace-sampler --uid="$sampler_user" \
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
