# shellcheck shell=sh
# What the two hooks share; sourced by them, never run. Shell builtins, and per hook one `sleep` and one `mv`.
#
# No file is touched by the hook's own process: a child does the work, and a hung directory hangs only that child.
# The environment is a stranger's: of it only what is written out in the hooks is read, checked character by character.

PATH=/usr/sbin:/usr/bin:/sbin:/bin
LC_ALL=C
export PATH LC_ALL
# A bash in sh's place takes functions and options from the environment, and every shell takes variables.
unset -f [ echo umask kill wait read printf sleep mv rm mkdir chmod chgrp chown logger setsid setpriv env
set +f
umask 027
config=${1:-/etc/slurm-trace/hooks.conf}
hook=${0##*/} dropped='' text='' opened=''
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

# shellcheck disable=SC2034 # the sampler's are for sampler.sh
read_config() {
    directory=/run/slurm-trace sampler_start=no sampler_user=slurm-trace
    sampler_command='/usr/libexec/slurm-trace/slurm-trace-node run --until-idle --syslog'
    if [ -r "$config" ]; then
        # Blanks around a line, and the carriage return of another system's editor, are no part of it.
        while read -r line || [ -n "$line" ]; do
            line=${line%[[:cntrl:]]}
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
# the file begins a pair, and none of that ending may have its name either. Where `opened` is set the file is of that
# moment and no other; false if somebody has made it meanwhile.
publish() {
    last=$((moment + 40))
    while [ "$moment" -lt "$last" ]; do
        # Who makes the claim owns the moment until the rename, which ends the claim as it makes the file: what is looked
        # for in between stays true. Not `mv -n`: in busybox and old coreutils that one looks, and then renames.
        # The claim of a hook that was killed stays, and is in nobody's way: the next one is taken.
        claim=$leases/.$job.$moment.tmp
        final=$leases/$job.${opened:-$moment}.$1
        if [ ! -e "$claim" ] && [ ! -L "$claim" ] && printf '' >"$claim"; then
            if [ ! -e "$final" ] && [ ! -L "$final" ] && { [ -z "${2-}" ] || [ ! -e "$leases/$job.$moment.$2" ]; }; then
                printf '%s' "$text" >|"$claim" && mv -f -- "$claim" "$final" && return 0
                last=0
            fi
            rm -f -- "$claim"
        fi
        if [ -n "$opened" ] && { [ -e "$final" ] || [ -L "$final" ]; }; then return 1; fi
        moment=$((moment + 1))
    done
    if [ -e "$claim" ] || [ -e "$final" ]; then trouble "cannot write $final: the names are taken"; fi
    trouble "cannot write $final: no space, read-only, or no permission"
}
